//! Events of alerts for subscribers, in the namespace Alert.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use skua_control::alert::{AlertEvent, AlertManager, AlertSubscription, AlertTurn};

use crate::ws::{
    mailbox::{Mailbox, Mailboxes, Message},
    message,
};

/// Namespace of the messages.
pub const NAMESPACE: &str = "Alert";
/// Events that wait for the thread that writes them.
const EVENTS: usize = 1024;
/// How often that thread checks whether there are subscribers.
const IDLE_CHECK: Duration = Duration::from_secs(5);

/// Encodes events once for all subscribers, on a thread that exists only while there are any.
pub struct AlertFeed {
    alerts: Arc<AlertManager>,
    /// Bytes that wait for each at most.
    waiting: usize,
    mailboxes: Mailboxes,
}

impl AlertFeed {
    /// A feed without subscribers.
    pub fn new(alerts: Arc<AlertManager>, waiting: usize) -> Arc<Self> {
        Arc::new(Self {
            alerts,
            waiting,
            mailboxes: Mailboxes::default(),
        })
    }

    /// A mailbox for all events from now on.
    pub fn join(self: &Arc<Self>) -> Arc<Mailbox> {
        let mailbox = Mailbox::new(self.waiting);
        if self.mailboxes.add(&mailbox) {
            let subscription = self.alerts.subscribe(EVENTS);
            let feed = self.clone();
            let pump = std::thread::Builder::new().name("alert-feed".into());
            if let Err(error) = pump.spawn(move || feed.pump(&subscription)) {
                tracing::error!("no thread for subscribers of alerts: {error}");
                mailbox.close();
            }
        }
        mailbox
    }

    fn pump(&self, subscription: &AlertSubscription) {
        loop {
            let event = subscription.next(IDLE_CHECK);
            let open = self.mailboxes.open();
            if open.is_empty() {
                return;
            }
            if let Some(event) = event {
                let message = text_of(&event);
                open.iter().for_each(|mailbox| mailbox.push(&message));
            }
        }
    }
}

fn text_of(event: &AlertEvent) -> Message {
    let kind = match event.state {
        AlertTurn::Fired => "Alert",
        // Skydive has no such messages: its clients take every `Alert` as one that has fired.
        AlertTurn::Resolved => "Resolved",
    };
    Message {
        text: message::news(NAMESPACE, kind, event).into(),
        items: 1,
        seq: 0,
    }
}

/// The text that says that the subscriber was too slow for so many events.
pub fn lost(events: u64) -> String {
    message::news(NAMESPACE, "Lost", json!({"Lost": events}))
}
