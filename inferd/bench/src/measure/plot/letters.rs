//! Letters of five by seven points, for pictures of points: those of a font would need one.

/// Letters side by side: a line names them, seven lines draw them.
const DRAWN: &str = include_str!("letters.txt");
/// Points of a letter, and from one to the next.
const WIDTH: usize = 5;
const HEIGHT: usize = 7;
const ADVANCE: usize = WIDTH + 1;

/// Points of a text's box.
pub(super) fn size(text: &str) -> (usize, usize) {
    ((text.chars().count() * ADVANCE).saturating_sub(1), HEIGHT)
}

/// The points of a text, from its upper left corner on. A letter that is not drawn here is a box.
pub(super) fn points(text: &str) -> impl Iterator<Item = (usize, usize)> {
    text.chars().enumerate().flat_map(|(place, letter)| {
        let is_set = drawn(letter);
        let all = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y)));
        all.filter(move |&(x, y)| is_set(x, y)).map(move |(x, y)| (place * ADVANCE + x, y))
    })
}

fn drawn(letter: char) -> impl Fn(usize, usize) -> bool {
    let lines: Vec<&'static str> = DRAWN.lines().collect();
    let found = lines.chunks(HEIGHT + 1).find_map(|block| {
        let first = block[0].char_indices().find(|&(_, name)| name == letter && !letter.is_whitespace())?.0;
        Some((block[1..].to_vec(), first))
    });
    move |x, y| match &found {
        Some((rows, first)) => rows[y].as_bytes().get(first + x) == Some(&b'#'),
        None => !letter.is_whitespace() && (x == 0 || x + 1 == WIDTH || y == 0 || y + 1 == HEIGHT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_that_a_caption_has_is_drawn_and_another_one_is_a_box() {
        let art = |text: &str| {
            let mut lines = vec![vec!['.'; size(text).0]; HEIGHT];
            points(text).for_each(|(x, y)| lines[y][x] = '#');
            lines.into_iter().map(String::from_iter).collect::<Vec<_>>()
        };
        assert_eq!(art("1"), ["..#..", ".##..", "..#..", "..#..", "..#..", "..#..", ".###."]);
        assert_eq!(art("-i")[0], "........#..");
        assert_eq!(points(" ").count(), 0);
        let a_box = art("\u{1f600}");
        let known = ('a'..='z').chain('A'..='Z').chain('0'..='9').chain(".,:;-_+/=%()".chars());
        for letter in known {
            let drawn = art(&letter.to_string());
            assert!(drawn != a_box && drawn.iter().any(|line| line.contains('#')), "{letter}: {drawn:?}");
            assert!(drawn.iter().all(|line| line.len() == WIDTH));
        }
    }
}
