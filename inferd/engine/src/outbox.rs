//! The way back to a request's reader: bounded, and never a reason for the engine thread to wait.

use crate::limits::EVENTS_UNREAD_MAX;
use crate::{Event, RequestFault};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// The engine's end. One slot is set aside for the last event, so that a full channel still hears how it ended.
pub(crate) struct Outbox {
    sender: mpsc::Sender<Event>,
    unread: Arc<Unread>,
    last: mpsc::OwnedPermit<Event>,
}

/// Why an event was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undelivered {
    /// The reader dropped its stream: the request is cancelled.
    Gone,
    /// The reader is too far behind.
    Slow,
}

/// The reader's end. Dropping it cancels the request: its row stops within one step.
#[derive(Debug)]
pub struct EventStream {
    receiver: mpsc::Receiver<Event>,
    unread: Arc<Unread>,
    ended: bool,
}

/// Bytes of the events that readers have not taken, of all requests together.
#[derive(Debug, Default)]
pub(crate) struct Unread(AtomicU64);

impl Unread {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn take(&self, event: &Event) {
        self.0.fetch_sub(event.weight() as u64, Ordering::Relaxed);
    }
}

/// A fresh pair. What its reader has not taken counts as unread.
pub(crate) fn outbox(unread: Arc<Unread>) -> (Outbox, EventStream) {
    let (sender, receiver) = mpsc::channel(EVENTS_UNREAD_MAX + 1);
    let last = sender.clone().try_reserve_owned().unwrap_or_else(|_| unreachable!("a fresh channel has room"));
    (Outbox { sender, unread: unread.clone(), last }, EventStream { receiver, unread, ended: false })
}

impl Outbox {
    /// Delivers an event or says why not.
    pub(crate) fn send(&self, event: Event) -> Result<(), Undelivered> {
        // Counted first: whoever takes it counts it out.
        self.unread.add(event.weight());
        self.sender.try_send(event).map_err(|error| {
            let (why, event) = match error {
                mpsc::error::TrySendError::Full(event) => (Undelivered::Slow, event),
                mpsc::error::TrySendError::Closed(event) => (Undelivered::Gone, event),
            };
            self.unread.take(&event);
            why
        })
    }

    /// Delivers an event that may be left out, when at least half of the room is free.
    pub(crate) fn hint(&self, event: Event) {
        if self.sender.capacity() > EVENTS_UNREAD_MAX / 2 {
            // A reader that is gone is noticed by the next check.
            let _ = self.send(event);
        }
    }

    /// Whether the reader dropped its stream.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.sender.is_closed()
    }

    /// Delivers the last event.
    pub(crate) fn end(self, event: Event) {
        self.last.send(event);
    }
}

impl EventStream {
    /// The next event, waiting for it without blocking a thread. `None` after the last one.
    pub async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.receiver.recv().await;
        Some(self.note(event))
    }

    /// As [`EventStream::next`], blocking the calling thread, which must not be one of an async runtime.
    pub fn blocking_next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.receiver.blocking_recv();
        Some(self.note(event))
    }

    /// The next event if it is there already.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Option<Event> {
        match self.receiver.try_recv() {
            Ok(event) => Some(self.note(Some(event))),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => (!self.ended).then(|| self.note(None)),
        }
    }

    /// A channel that closes without a last event means that the engine thread is gone.
    fn note(&mut self, event: Option<Event>) -> Event {
        let event = event.unwrap_or(Event::Failed(RequestFault::EngineStopped));
        self.unread.take(&event);
        self.ended = matches!(event, Event::Finished(_) | Event::Failed(_));
        event
    }
}

impl Drop for EventStream {
    /// What was not read never will be.
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok(event) = self.receiver.try_recv() {
            self.unread.take(&event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, Delta};
    use ds4_units::{TokenId, Tokens};

    fn outbox() -> (Outbox, EventStream) {
        super::outbox(Arc::default())
    }

    #[test]
    fn what_readers_have_not_taken_is_counted_until_they_take_it_or_leave() {
        let unread = Arc::new(Unread::default());
        let (first, mut reader) = super::outbox(unread.clone());
        let (second, leaves) = super::outbox(unread.clone());
        let text = |text: &str| {
            let token_ids = vec![TokenId(1), TokenId(2)];
            Event::Delta(Delta { channel: Channel::Content, text: text.into(), token_ids })
        };
        first.send(text("abc")).unwrap();
        first.send(text("d")).unwrap();
        second.send(text("efgh")).unwrap();
        assert_eq!(unread.bytes(), 3 + 1 + 4 + 3 * 8);
        reader.blocking_next();
        assert_eq!(unread.bytes(), 1 + 4 + 2 * 8);
        drop(leaves);
        assert_eq!(second.send(text("nobody reads this")), Err(Undelivered::Gone));
        assert_eq!(unread.bytes(), 1 + 8);
        reader.blocking_next();
        first.end(Event::Failed(RequestFault::EngineStopped));
        reader.blocking_next();
        assert_eq!(unread.bytes(), 0);
    }

    fn progress() -> Event {
        Event::Prefill { done: Tokens(1), total: Tokens(2) }
    }

    #[test]
    fn a_full_outbox_refuses_at_once_and_still_delivers_the_last_event() {
        let (outbox, mut stream) = outbox();
        for _ in 0..EVENTS_UNREAD_MAX {
            outbox.send(progress()).unwrap();
        }
        assert_eq!(outbox.send(progress()), Err(Undelivered::Slow));
        outbox.end(Event::Failed(RequestFault::SlowReader { unread: EVENTS_UNREAD_MAX }));
        let mut events = Vec::new();
        while let Some(event) = stream.blocking_next() {
            events.push(event);
        }
        assert_eq!(events.len(), EVENTS_UNREAD_MAX + 1);
        assert!(matches!(events.last(), Some(Event::Failed(RequestFault::SlowReader { .. }))));
    }

    #[test]
    fn hints_leave_half_of_the_room_to_text() {
        let (outbox, _stream) = outbox();
        for _ in 0..EVENTS_UNREAD_MAX {
            outbox.hint(progress());
        }
        assert!(outbox.sender.capacity() >= EVENTS_UNREAD_MAX / 2);
    }

    #[test]
    fn a_dropped_stream_is_a_cancelled_request() {
        let (outbox, stream) = outbox();
        assert!(!outbox.is_cancelled());
        drop(stream);
        assert!(outbox.is_cancelled());
        assert_eq!(outbox.send(progress()), Err(Undelivered::Gone));
    }

    #[test]
    fn a_lost_engine_ends_the_stream_with_its_own_event() {
        let (outbox, mut stream) = outbox();
        drop(outbox);
        assert_eq!(stream.blocking_next(), Some(Event::Failed(RequestFault::EngineStopped)));
        assert_eq!(stream.blocking_next(), None);
    }
}
