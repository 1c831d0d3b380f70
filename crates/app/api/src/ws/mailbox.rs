//! What waits for a subscriber, bounded.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use axum::extract::ws::Utf8Bytes;
use tokio::sync::Notify;

/// A message that several subscribers get.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its text.
    pub text: Utf8Bytes,
    /// Number of changes in it.
    pub items: u64,
    /// Number of the event that it is about, 0 for none.
    pub seq: u64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Message>,
    bytes: usize,
    dropped: u64,
    closed: bool,
}

/// Messages that wait for one subscriber, with a limit in bytes.
pub struct Mailbox {
    limit: usize,
    queue: Mutex<Queue>,
    came: Notify,
}

/// The next item for a subscriber.
#[derive(Debug)]
pub enum Mail {
    /// A message.
    Message(Message),
    /// Before this point, this many changes were dropped because the mailbox was full.
    Dropped(u64),
    /// There will be no more.
    Closed,
}

impl Mailbox {
    /// An empty one.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            queue: Mutex::default(),
            came: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another message fits.
    pub fn has_room(&self) -> bool {
        let queue = self.lock();
        queue.bytes < self.limit && queue.dropped == 0
    }

    /// Adds a message, or counts its changes as dropped. After a drop, no message is added until
    /// the subscriber has read the count, so that the gap is reported where it is.
    pub fn push(&self, message: &Message) {
        let mut queue = self.lock();
        if queue.bytes >= self.limit || queue.dropped > 0 {
            queue.dropped += message.items;
        } else {
            queue.bytes += message.text.len();
            queue.waiting.push_back(message.clone());
        }
        drop(queue);
        self.came.notify_one();
    }

    /// Counts changes as dropped for which no message was made.
    pub fn drop_items(&self, items: u64) {
        self.lock().dropped += items;
        self.came.notify_one();
    }

    /// No more messages will be added.
    pub fn close(&self) {
        self.lock().closed = true;
        self.came.notify_one();
    }

    /// The next item, if there is one.
    pub fn try_next(&self) -> Option<Mail> {
        let mut queue = self.lock();
        if let Some(message) = queue.waiting.pop_front() {
            queue.bytes -= message.text.len();
            return Some(Mail::Message(message));
        }
        match std::mem::take(&mut queue.dropped) {
            0 => queue.closed.then_some(Mail::Closed),
            dropped => Some(Mail::Dropped(dropped)),
        }
    }

    /// Waits for the next item. Cancellation loses nothing.
    pub async fn next(&self) -> Mail {
        loop {
            if let Some(mail) = self.try_next() {
                return mail;
            }
            self.came.notified().await;
        }
    }
}

/// The mailboxes of all subscribers of the same messages.
#[derive(Default)]
pub struct Mailboxes(Mutex<List>);

#[derive(Default)]
struct List {
    boxes: Vec<Weak<Mailbox>>,
    pumped: bool,
}

impl Mailboxes {
    /// Adds a mailbox. True if no task fills them: the caller must start one.
    pub fn add(&self, mailbox: &Arc<Mailbox>) -> bool {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.boxes.push(Arc::downgrade(mailbox));
        !std::mem::replace(&mut list.pumped, true)
    }

    /// Mailboxes with subscribers. If there are none, the task that fills them must end.
    pub fn open(&self) -> Vec<Arc<Mailbox>> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.boxes.retain(|weak| weak.strong_count() > 0);
        let open: Vec<_> = list.boxes.iter().filter_map(Weak::upgrade).collect();
        list.pumped = !open.is_empty();
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: u64) -> Message {
        Message {
            text: "0123456789".into(),
            items: 3,
            seq,
        }
    }

    #[test]
    fn dropped_messages_are_counted_where_they_are_missing() {
        let mailbox = Mailbox::new(15);
        for seq in 1..=4 {
            mailbox.push(&message(seq));
        }
        mailbox.drop_items(5);
        assert!(!mailbox.has_room());
        let next = || match mailbox.try_next() {
            Some(Mail::Message(message)) => message.seq as i64,
            Some(Mail::Dropped(dropped)) => -(dropped as i64),
            Some(Mail::Closed) => 99,
            None => 0,
        };
        assert_eq!([next(), next()], [1, 2]);
        mailbox.push(&message(5));
        assert_eq!([next(), next()], [-14, 0]);
        mailbox.push(&message(6));
        mailbox.close();
        assert_eq!([next(), next()], [6, 99]);
    }

    #[test]
    fn the_task_that_fills_mailboxes_starts_and_ends_with_their_subscribers() {
        let all = Mailboxes::default();
        let one = Mailbox::new(1);
        assert!(all.add(&one));
        let two = Mailbox::new(1);
        assert!(!all.add(&two));
        assert_eq!(all.open().len(), 2);
        drop((one, two));
        assert_eq!(all.open().len(), 0);
        assert!(all.add(&Mailbox::new(1)));
    }
}
