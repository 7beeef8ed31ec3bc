//! The recordings that observers of a running host have ordered.
//!
//! An order names parents, or a plugin whose faults are wanted. It is bounded by a number, by bytes and by a time, and
//! ends with its receiver.

use std::sync::atomic::{AtomicUsize, Ordering};

use innkeeper_model::{ObjectId, PluginName};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};

/// The most orders at a time: each costs the encoding of the calls that it may want.
const ORDERS_MAX: usize = 8;

/// The most bytes of the recordings of one order, which wait for their reader in memory.
/// Chosen: some calls with a thousand children each.
pub const RECORDINGS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The calls of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those for a parent, whose passes then do not answer from memory.
    Parent(PluginName, ObjectId),
    /// Those of a plugin that end with a fault.
    Faults(PluginName),
}

impl Wanted {
    /// Returns true if a call may be one of these, before its end is known.
    fn may_be(&self, plugin: &PluginName, parent: &ObjectId) -> bool {
        match self {
            Self::Parent(of, wanted) => of == plugin && wanted == parent,
            Self::Faults(of) => of == plugin,
        }
    }
}

/// The orders of recordings.
#[derive(Debug, Default)]
pub struct Recordings {
    orders: Mutex<Vec<RecordingOrder>>,
    /// The number of orders, so that passes take no lock while there is none.
    count: AtomicUsize,
}

#[derive(Debug)]
struct RecordingOrder {
    wanted: Vec<Wanted>,
    until: Instant,
    number_left: usize,
    bytes_left: usize,
    to: mpsc::Sender<String>,
}

impl RecordingOrder {
    fn is_over(&self) -> bool {
        self.number_left == 0 || self.to.is_closed() || Instant::now() >= self.until
    }

    /// Takes a recording; an order that cannot take it is over.
    fn take(&mut self, text: &str) {
        let bytes_left = self.bytes_left.checked_sub(text.len());
        // The channel has room for the whole number.
        let is_taken = bytes_left.is_some() && self.to.try_send(text.to_owned()).is_ok();
        self.bytes_left = bytes_left.unwrap_or_default();
        self.number_left = if is_taken { self.number_left - 1 } else { 0 };
    }
}

impl Recordings {
    /// Orders a number of recordings until a time; none if there are too many orders.
    ///
    /// The channel ends when the order is complete, or when it has too many bytes.
    pub fn order(
        &self,
        wanted: Vec<Wanted>,
        number: usize,
        until: Instant,
    ) -> Option<mpsc::Receiver<String>> {
        let (to, from) = mpsc::channel(number.max(1));
        let order = RecordingOrder {
            wanted,
            until,
            number_left: number,
            bytes_left: RECORDINGS_BYTES_MAX,
            to,
        };
        self.look(|orders| {
            let is_free = orders.len() < ORDERS_MAX;
            is_free.then(|| orders.push(order))
        })?;
        Some(from)
    }

    /// Returns true if a call for the parent is wanted whatever its end is.
    pub(crate) fn want_call(&self, plugin: &PluginName, parent: &ObjectId) -> bool {
        self.any(|wanted| matches!(wanted, Wanted::Parent(..)) && wanted.may_be(plugin, parent))
    }

    /// Returns true if a call for the parent may be wanted.
    pub(crate) fn may_want(&self, plugin: &PluginName, parent: &ObjectId) -> bool {
        self.any(|wanted| wanted.may_be(plugin, parent))
    }

    /// Hands a recording to the orders that want it.
    pub(crate) fn deliver(
        &self,
        plugin: &PluginName,
        parent: &ObjectId,
        is_fault: bool,
        text: &str,
    ) {
        let is_it = |wanted: &Wanted| {
            wanted.may_be(plugin, parent) && (is_fault || !matches!(wanted, Wanted::Faults(_)))
        };
        self.look(|orders| {
            let wants = |order: &&mut RecordingOrder| order.wanted.iter().any(is_it);
            orders.iter_mut().filter(wants).for_each(|it| it.take(text));
            // The channels of complete orders end at once.
            orders.retain(|order| !order.is_over());
        });
    }

    fn any(&self, is_it: impl Fn(&Wanted) -> bool) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.look(|orders| orders.iter().any(|order| order.wanted.iter().any(&is_it)))
    }

    /// Looks at the orders that are not over.
    fn look<T>(&self, look: impl FnOnce(&mut Vec<RecordingOrder>) -> T) -> T {
        let mut orders = self.orders.lock();
        orders.retain(|order| !order.is_over());
        let seen = look(&mut orders);
        self.count.store(orders.len(), Ordering::Relaxed);
        seen
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use innkeeper_model::GroupKind;

    use super::*;

    fn web() -> PluginName {
        PluginName::new("web").unwrap()
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::new(GroupKind::new("example.com", "Web"), Some("demo"), name)
    }

    fn parent() -> Vec<Wanted> {
        vec![Wanted::Parent(web(), id("a"))]
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    fn read(from: &mut mpsc::Receiver<String>) -> Vec<String> {
        std::iter::from_fn(|| from.try_recv().ok()).collect()
    }

    #[tokio::test]
    async fn an_order_gets_its_number_of_calls_and_no_others() {
        let recordings = Recordings::default();
        assert!(!recordings.may_want(&web(), &id("a")));
        let mut from = recordings.order(parent(), 1, soon()).unwrap();
        let mut faults = recordings
            .order(vec![Wanted::Faults(web())], 2, soon())
            .unwrap();
        assert!(recordings.want_call(&web(), &id("a")));
        assert!(!recordings.want_call(&web(), &id("b")));
        assert!(recordings.may_want(&web(), &id("b")));
        for (name, is_fault, text) in [("b", false, "1"), ("a", false, "2"), ("a", true, "3")] {
            recordings.deliver(&web(), &id(name), is_fault, text);
        }
        assert_eq!(read(&mut from), ["2"]);
        assert!(from.is_closed());
        assert!(!recordings.want_call(&web(), &id("a")));
        assert_eq!(read(&mut faults), ["3"]);
        assert!(!faults.is_closed());
        drop(faults);
        assert!(!recordings.may_want(&web(), &id("b")));
    }

    #[tokio::test]
    async fn an_order_ends_with_its_bytes_and_its_time() {
        let recordings = Recordings::default();
        let mut from = recordings.order(parent(), 3, soon()).unwrap();
        let half = "x".repeat(RECORDINGS_BYTES_MAX / 2);
        for text in [&half, &half, "x"] {
            recordings.deliver(&web(), &id("a"), false, text);
        }
        assert_eq!(read(&mut from).len(), 2);
        assert!(from.is_closed());
        let order = |until| recordings.order(parent(), 1, until);
        let past = order(Instant::now()).unwrap();
        assert!(!recordings.want_call(&web(), &id("a")));
        let kept: Vec<_> = (0..ORDERS_MAX).map(|_| order(soon()).unwrap()).collect();
        assert!(order(soon()).is_none());
        drop((past, kept));
        assert!(order(soon()).is_some());
    }
}
