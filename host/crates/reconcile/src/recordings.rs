//! The recordings that clients of the admin server wait for.
//!
//! An order names parents, or a plugin whose faults it collects. It ends with its number, bytes or time, or with the
//! receiver.

use std::sync::atomic::{AtomicUsize, Ordering};

use innkeeper_model::{ObjectId, PluginName};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};

/// The most concurrent orders: each makes the host encode all calls that may match.
const ORDERS_MAX: usize = 8;

/// The most bytes of one order, which wait in memory for their reader: a few calls with a thousand children each.
pub const RECORDINGS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The calls that an order collects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All calls for a parent, whose passes then always call the guest.
    Parent(PluginName, ObjectId),
    /// A plugin's calls that end with a fault.
    Faults(PluginName),
}

impl Wanted {
    /// Returns true if a call may match, as far as is known before the end.
    fn may_be(&self, plugin: &PluginName, parent: &ObjectId) -> bool {
        match self {
            Self::Parent(own_plugin, own_parent) => own_plugin == plugin && own_parent == parent,
            Self::Faults(own_plugin) => own_plugin == plugin,
        }
    }
}

/// The current orders.
#[derive(Debug, Default)]
pub struct Recordings {
    orders: Mutex<Vec<RecordingOrder>>,
    /// The number of orders; passes take no lock while it is zero.
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

    /// Sends a recording; an order without room for it is over.
    fn take(&mut self, text: &str) {
        let bytes_left = self.bytes_left.checked_sub(text.len());
        // The channel has room for the whole number.
        let is_taken = bytes_left.is_some() && self.to.try_send(text.to_owned()).is_ok();
        self.bytes_left = bytes_left.unwrap_or_default();
        self.number_left = if is_taken { self.number_left - 1 } else { 0 };
    }
}

impl Recordings {
    /// Orders a number of recordings until a time; `None` if there are too many orders.
    ///
    /// The channel ends when the order is complete or has too many bytes.
    pub fn order(
        &self,
        wanted: Vec<Wanted>,
        number: usize,
        until: Instant,
    ) -> Option<mpsc::Receiver<String>> {
        // A channel without room would panic.
        let (to, from) = mpsc::channel(number.max(1));
        let order = RecordingOrder {
            wanted,
            until,
            number_left: number,
            bytes_left: RECORDINGS_BYTES_MAX,
            to,
        };
        self.with_orders(|orders| (orders.len() < ORDERS_MAX).then(|| orders.push(order)))?;
        Some(from)
    }

    /// Returns true if an order waits for the parent's calls, whatever their end.
    pub(crate) fn want_call(&self, plugin: &PluginName, parent: &ObjectId) -> bool {
        self.any(|wanted| matches!(wanted, Wanted::Parent(..)) && wanted.may_be(plugin, parent))
    }

    /// Returns true if an order may wait for the parent's next call.
    pub(crate) fn may_want(&self, plugin: &PluginName, parent: &ObjectId) -> bool {
        self.any(|wanted| wanted.may_be(plugin, parent))
    }

    /// Sends a recording to the matching orders.
    pub(crate) fn deliver(
        &self,
        plugin: &PluginName,
        parent: &ObjectId,
        is_fault: bool,
        text: &str,
    ) {
        let matches = |wanted: &Wanted| {
            wanted.may_be(plugin, parent) && (is_fault || !matches!(wanted, Wanted::Faults(_)))
        };
        self.with_orders(|orders| {
            orders
                .iter_mut()
                .filter(|order| order.wanted.iter().any(matches))
                .for_each(|order| order.take(text));
            // The channels of complete orders end at once.
            orders.retain(|order| !order.is_over());
        });
    }

    fn any(&self, matches: impl Fn(&Wanted) -> bool) -> bool {
        // A pass that does not see a new order yet is only not recorded: the order gets a later call.
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.with_orders(|orders| orders.iter().any(|order| order.wanted.iter().any(&matches)))
    }

    /// Calls `access` with the orders that are not over.
    fn with_orders<T>(&self, access: impl FnOnce(&mut Vec<RecordingOrder>) -> T) -> T {
        let mut orders = self.orders.lock();
        orders.retain(|order| !order.is_over());
        let result = access(&mut orders);
        self.count.store(orders.len(), Ordering::Relaxed);
        result
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
        let others: Vec<_> = (0..ORDERS_MAX).map(|_| order(soon()).unwrap()).collect();
        assert!(order(soon()).is_none());
        drop((past, others));
        assert!(order(soon()).is_some());
    }
}
