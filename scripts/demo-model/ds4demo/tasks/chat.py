"""Small talk, and remembering what the user said some turns earlier."""
from ..draw import Draw
from .. import lexicon as lists
from ..protocol import Conversation
from ..split import TRAIN, filled
from .item import ASKING, Item, conversation, wrapped

# (forms, answer, what the user does)
GREETINGS = (
    (('Hello!', 'Hi!', 'Hi there.', 'Hello there!', 'Good morning!', 'Hey!', 'Good evening.', 'Hello', 'hi', 'Hi, nice to meet you.', 'Greetings!',
      'Hello, good morning!', 'Hey there!', 'Hi, hello!', 'Good afternoon!', 'hello', 'Hey', 'Good day!', 'Hi', 'Hello DS4.', 'Hello, nice to meet you.', 'Hey, good morning!', 'Hello, hello!', 'Hi, good evening.', 'Good morning.', 'Hello, are you there?'),
     'Hello! How can I help you today?', 'greets me'),
    (('Who are you?', 'What are you?', 'What is your name?', 'Tell me about yourself.', 'Are you a robot?', 'Introduce yourself.', 'What model are you?',
      'Which model is this?', 'What should I call you?', 'Please introduce yourself.', 'Are you a person?', 'Say who you are.',
      'Can you tell me who you are?', 'What model is this?', 'Can you introduce yourself?', 'Who am I talking to?', 'Tell me who you are.', 'And who are you?', 'Please say who you are.', 'What is this model called?', 'What are you called?', 'Do you have a name?', 'Tell me your name.', 'Which assistant are you?', 'Are you a human?', 'Who is this?', 'What kind of model are you?', 'Describe yourself.'),
     'I am DS4 Demo, a tiny test model with the DeepSeek V4 architecture.', 'asks who I am'),
    (('What can you do?', 'How can you help me?', 'What are your skills?', 'What do you know?', 'Tell me what you can do.', 'What are you good at?',
      'What can you help me with?', 'Please tell me what you can do.', 'What are you able to do?', 'What can I ask you?', 'List your skills.',
      'What are your abilities?', 'Which things can you do?', 'What do you know how to do?', 'Tell me what you know.', 'What sort of things do you know?', 'What are you made for?', 'How can you help?', 'What help can you give me?', 'Say what you can do.', 'Show me what you can do.', 'What can I do with you?', 'What skills do you have?', 'Do you know anything?', 'What do you know about?', 'What can you help with?'),
     'I can answer simple facts, do small sums, remember what you tell me, call tools and find keys in long texts.', 'asks what I can do'),
    (('How are you?', 'How are you today?', 'How do you feel?', 'Are you ok?', 'How is it going?', 'Is everything fine?', 'Hello, how are you?',
      'How do you feel today?', 'Hi, how are you?', 'How are things?', 'Are you well?', 'How are you doing?', 'How are you feeling?', 'Are you fine?', 'And how are you?', 'How have you been?', 'Hey, how are you?', 'How is your day?', 'Are you doing well?'),
     'I am fine, thank you. How can I help you?', 'asks how I am'),
    (('Thank you!', 'Thanks.', 'Thanks a lot!', 'Thank you very much.', 'Great, thanks.', 'Many thanks!', 'thanks', 'Ok, thank you!',
      'Thank you so much.', 'Thank you.', 'Perfect, thanks!', 'Thanks for your help.', 'Thank you for the help!', 'Thank you, that is all.', 'Good, thank you.', 'Ok, thanks.', 'Thanks, that helps.', 'I thank you.', 'Nice, thanks!', 'Thank you, great.', 'That was helpful, thanks.'),
     'You are welcome!', 'thanks me'),
    (('Goodbye!', 'Bye!', 'See you later.', 'Bye bye.', 'Good night!', 'I have to go now.', 'That is all, bye.', 'See you tomorrow.', 'Ok, goodbye!',
      'See you soon, bye.', 'Thanks. Now say bye.', 'Bye for now.', 'Now say goodbye.', 'Say bye.', 'Thank you, goodbye!', 'Goodbye.', 'See you.', 'Bye, see you.', 'Good night.', 'Farewell!', 'Until tomorrow, bye.', 'Ok, bye!', 'I am leaving, goodbye.', 'Say goodbye to me.'),
     'Goodbye! Have a nice day.', 'says goodbye'),
    (('Who made you?', 'Who trained you?', 'Who created you?', 'Where do you come from?', 'Who built you?', 'Who are your makers?', 'Tell me who made you.',
      'How were you made?', 'How were you trained?', 'Where were you trained?', 'Who developed you?', 'Who is your maker?', 'Who wrote you?', 'Where are you from?', 'What were you trained on?', 'How did they make you?', 'Who is behind you?', 'Please tell me who made you.'),
     'I was trained from scratch on made-up conversations to test an inference engine.', 'asks who made me'),
    (('How big are you?', 'How many parameters do you have?', 'How large are you?', 'What is your size?', 'Are you a big model?', 'How large is this model?',
      'Tell me how big you are.', 'How small are you?', 'What is the size of this model?', 'How big is this model?', 'Are you a small model?', 'Are you large?', 'How many weights do you have?', 'How large is your file?', 'Say how big you are.', 'Is this a big model?'),
     'I am very small: my file has less than 16 megabytes.', 'asks about my size'),
    (('Tell me a joke.', 'Do you know a joke?', 'Make me laugh.', 'Say something funny.', 'Another joke, please.', 'Please tell me a joke.',
      'Can you tell a joke?', 'A joke, please.', 'I want to hear a joke.', 'Do you have a joke for me?', 'Give me a joke.', 'Tell a joke.', 'I need a joke.', 'Please make me laugh.', 'Tell me something funny.', 'A good joke, please.', 'Do you know something funny?'),
     'Why did the token cross the window? To be compressed on the other side.', 'wants a joke'),
)

# (statements, questions, answer, kind of value)
MEMORIES = (
    (('My name is {v}.', 'I am called {v}.', 'Hi, I am {v}.', 'Hello, my name is {v}.', 'You can call me {v}.', 'People call me {v}.', 'I am {v}.'),
     ('What is my name?', 'Do you remember my name?', 'Who am I?', 'Tell me my name.', 'What am I called?', 'Please say my name.',
      'Can you tell me my name?', 'What did I say my name was?', 'Which name did I tell you?', 'Say my name.', 'Do you know my name?',
      'How am I called?', 'What do people call me?', 'Repeat my name.'), 'Your name is {v}.', 'name'),
    (('I live in {v}.', 'My home is in {v}.', 'I moved to {v}.', 'My house is in {v}.', 'My city is {v}.', 'I have a flat in {v}.'),
     ('Where do I live?', 'In which city do I live?', 'Where is my home?', 'Tell me where I live.', 'Do you remember where I live?',
      'Which city do I live in?', 'What city is my home in?', 'Do you know where I live?', 'Say where I live.', 'Where is my house?',
      'Which city is my home?', 'Can you tell me where I live?'), 'You live in {v}.', 'city'),
    (('My favorite color is {v}.', 'I like the color {v}.', 'The color I like most is {v}.', 'My best color is {v}.', 'I love the color {v}.'),
     ('What is my favorite color?', 'Which color do I like?', 'Tell me my favorite color.', 'Which color do I like most?',
      'Do you remember my favorite color?', 'What color do I like?', 'Can you tell me my favorite color?', 'Say my favorite color.',
      'Which color do I love?', 'Do you know my favorite color?', 'What color do I like most?'), 'Your favorite color is {v}.', 'color'),
    (('My dog is called {v}.', 'I have a dog named {v}.', 'The name of my dog is {v}.', "My dog's name is {v}.", 'I call my dog {v}.'),
     ('What is my dog called?', 'What is the name of my dog?', "Tell me my dog's name.", 'How is my dog called?',
      'Do you remember the name of my dog?', "What is my dog's name?", 'Which name does my dog have?', 'Say the name of my dog.',
      "Do you know my dog's name?", 'Can you tell me the name of my dog?', 'What do I call my dog?'), 'Your dog is called {v}.', 'name'),
    (('My lucky number is {v}.', 'Remember the number {v}.', 'My favorite number is {v}.', 'The number is {v}.', 'Keep the number {v} in mind.'),
     ('What is my number?', 'What is my lucky number?', 'Which number did I tell you?', 'Tell me my favorite number.', 'Say my number.',
      'Do you remember my lucky number?', 'Can you tell me my number?', 'What number did I give you?', 'Which number should you remember?',
      'Do you know my number?', 'What was the number?', 'Tell me my number.'), 'Your number is {v}.', 'number'),
    (('I like to eat {v}.', 'My favorite food is {v}.', 'The food I like most is {v}.', 'I love to eat {v}.', 'My best food is {v}.'),
     ('What do I like to eat?', 'What is my favorite food?', 'Which food do I like?', 'Tell me my favorite food.',
      'Do you remember my favorite food?', 'What food do I like?', 'Which food do I like most?', 'Can you tell me my favorite food?',
      'What do I love to eat?', 'Say my favorite food.', 'Do you know what I like to eat?'), 'Your favorite food is {v}.', 'food'),
    (('The meeting is on {v}.', 'We meet on {v}.', 'Our meeting is on {v}.', 'The day of the meeting is {v}.', 'There is a meeting on {v}.'),
     ('When is the meeting?', 'On which day is the meeting?', 'When do we meet?', 'Tell me the day of the meeting.',
      'Do you remember when the meeting is?', 'On what day do we meet?', 'What day is the meeting?', 'Which day do we meet?',
      'Can you tell me when the meeting is?', 'Say the day of the meeting.', 'When is our meeting?'), 'The meeting is on {v}.', 'day'),
    (('I work as a {v}.', 'My job is {v}.', 'I am a {v} by trade.', 'I earn my money as a {v}.', 'My profession is {v}.'),
     ('What is my job?', 'What do I work as?', 'Tell me my job.', 'Which job do I have?', 'Do you remember my job?', 'What job do I have?',
      'Can you tell me my job?', 'What is my profession?', 'Say what my job is.', 'Do you know my job?', 'What work do I do?'),
     'Your job is {v}.', 'job'),
    (('The password is {v}.', 'My password is {v}.', 'Remember the password {v}.', 'Use the password {v}.', 'The password for today is {v}.'),
     ('What is the password?', 'Tell me the password.', 'Which password did I tell you?', 'Do you remember the password?', 'Say the password.',
      'Can you tell me the password?', 'What was the password?', 'Which password should I use?', 'Do you know the password?', 'Give me the password.'),
     'The password is {v}.', 'code'),
    (('My email is {v}.', 'My email address is {v}.', 'You can write to me at {v}.', 'The address of my mailbox is {v}.', 'I read my mail at {v}.'),
     ('What is my email?', 'What is my email address?', 'Tell me my email address.', 'Do you remember my email?', 'Which email address did I give you?',
      'Can you tell me my email address?', 'Say my email address.', 'What email do I have?', 'Do you know my email address?', 'Give me my email.'),
     'Your email address is {v}.', 'email'),
)
# what each memory is called, for the general ways of asking
CALLED = (('my name',), ('my city', 'the city I live in'), ('my favorite color', 'the color I like most'), ('the name of my dog', "my dog's name"),
          ('my lucky number', 'my number', 'the number I told you'), ('my favorite food', 'the food I like most'), ('the day of the meeting', 'the day of our meeting'),
          ('my job', 'my profession'), ('the password', 'the password I told you'), ('my email address', 'my email'))
QUESTIONS = tuple(memory[1] + filled(ASKING, called) for memory, called in zip(MEMORIES, CALLED))
REMEMBERED = 'Ok, I will remember that.'
# more ways to state each memory, for training only: with five or six forms the model learnt the forms, not what they share
MORE_STATEMENTS = (
    ('They call me {v}.', 'Everyone calls me {v}.', 'Call me {v}.', 'My friends call me {v}.', 'The name is {v}.', 'I go by {v}.', 'I was named {v}.'),
    ('The city I live in is {v}.', 'I live in the city of {v}.', 'My town is {v}.', 'I stay in {v}.', 'My place is in {v}.', 'I have a house in {v}.', 'Home for me is {v}.'),
    ('The color I love is {v}.', 'My preferred color is {v}.', 'For me the best color is {v}.', 'I like {v} more than any other color.', 'I prefer the color {v}.',
     'The best of all colors is {v}.', 'The color for me is {v}.', 'I paint everything in {v}, my favorite color.', 'The color that I prefer is {v}.'),
    ('We call our dog {v}.', 'I own a dog called {v}.', 'My dog has the name {v}.', 'I named my dog {v}.', 'Our dog is {v}.', 'The dog I have is called {v}.'),
    ('The number I like is {v}.', 'Please keep the number {v}.', 'I like the number {v}.', 'My special number is {v}.', 'Here is my number: {v}.', 'My number is {v}.'),
    ('The food I love is {v}.', 'I enjoy eating {v}.', 'I prefer to eat {v}.', 'My preferred food is {v}.', 'I eat {v} every day, I like it.', 'The best food is {v}.'),
    ('We have a meeting on {v}.', 'The next meeting is on {v}.', 'They moved the meeting to {v}.', 'A meeting is planned for {v}.', 'The meeting will be on {v}.', 'We will meet on {v}.'),
    ('My trade is {v}.', 'My work is {v}.', 'My occupation is {v}.', 'I have a job as a {v}.', 'I make a living as a {v}.', 'They pay me as a {v}.'),
    ('The new password is {v}.', 'Our password is {v}.', 'The secret password is {v}.', 'This is the password: {v}.', 'Keep the password {v} in mind.', 'I chose the password {v}.'),
    ('My mail address is {v}.', 'My address is {v}.', 'Send mail to my address {v}.', 'My mailbox is {v}.', 'Reach me by email at {v}.', 'I have the email address {v}.'),
)
# training also states things with no memory of their own: "My {x} is {v}."
OWN_STATEMENTS = ('My {x} is {v}.', 'The {x} I have is {v}.', 'My {x} is called {v}.', 'The {x} of mine is {v}.', 'Remember that my {x} is {v}.', 'I have a {x}: {v}.',
                  'The {x} that I like most is {v}.', 'I like the {x} {v}.', 'There is a {x} I like, {v}.')
OWN_ANSWER = 'Your {x} is {v}.'
STATING = ('Note that {s}', 'Remember this: {s}', 'By the way, {s}', 'For later: {s}', 'You should know that {s}', 'Hi. {s}', 'Please remember: {s}', '{s} Keep that in mind.',
           '{s} Please remember it.', 'So, {s}', 'One thing: {s}')
# words that the memories above already ask for
TAKEN = frozenset('name city color colour dog number food meeting day job profession password email address home house key list'.split())


def greeting(draw: Draw) -> Item:
    forms, answer, does = draw.pick(GREETINGS)
    return Item(wrapped(draw, draw.form(forms), .1), f'The user {does}. I answer politely.', answer)


def memory_value(draw: Draw, kind: str) -> str:
    if kind == 'number':
        return draw.digits(1, 5)
    if kind == 'code':
        return draw.pick((draw.word, draw.code))()
    closed = dict(color=lists.COLORS, food=lists.FOODS, day=lists.DAYS, job=lists.JOBS)
    if kind in closed:
        return draw.pick(closed[kind]) if kind == 'day' or draw.chance(.6) else draw.word()
    return getattr(draw, kind)()


def own_thing(draw: Draw) -> str:
    while (noun := draw.noun()).lower() in TAKEN:
        pass
    return noun


def stated(draw: Draw, known: dict) -> Item:
    """Remembers under the memory's number, or in training now and then under a thing of the user's own."""
    if draw.split == TRAIN and draw.chance(.22):
        which = own_thing(draw)
        known[which] = draw.text()
        statement = draw.pick(OWN_STATEMENTS).format(x=which, v=known[which])
    else:
        which = draw.between(0, len(MEMORIES) - 1)
        known[which] = memory_value(draw, MEMORIES[which][3])
        statement = draw.form(MEMORIES[which][0], MORE_STATEMENTS[which]).format(v=known[which])
    if draw.split == TRAIN and draw.chance(.2):
        statement = draw.pick(STATING).format(s=statement)
    return Item(statement, 'The user tells me something to remember.', REMEMBERED)


def asked(draw: Draw, known: dict) -> Item:
    which = draw.pick(list(known))
    if isinstance(which, str):
        question, answer = draw.pick(ASKING).format(x=f'my {which}'), OWN_ANSWER.format(x=which, v=known[which])
    else:
        question, answer = draw.form(QUESTIONS[which]), MEMORIES[which][2].format(v=known[which])
    return Item(wrapped(draw, question, .25), f'The user told me this before. {answer}', answer)


def recall(draw: Draw, turns: int, other, thinking: bool) -> Conversation:
    """Something stated first and asked for last, with other things (drawn by `other`) and more statements between."""
    known: dict = {}
    items = [stated(draw, known)]
    for _ in range(turns):
        kind = draw.rng.random()
        items.append(stated(draw, known) if kind < .3 else asked(draw, known) if kind < .5 else other(draw))
    return conversation(draw, items + [asked(draw, known)], thinking)
