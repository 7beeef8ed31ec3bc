//! Rollouts of a new Pod template: computes the StatefulSet's partition from the observed Pods.
//!
//! The StatefulSet controller replaces the highest outdated Pod without looking at the Pods below it, so a rollout
//! while another member is down would cost the quorum. The partition therefore decreases by one member at a time.

use std::collections::{BTreeMap, BTreeSet};

/// The Pod facts that a rollout uses. A member without a Pod gets one with the new template and loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RollingPod {
    pub(crate) is_ready: bool,
    /// The Pod has the desired template.
    pub(crate) is_updated: bool,
}

/// The next partition: Pods from this ordinal on may be replaced.
///
/// A step is safe if it replaces an unready Pod, or a ready one while all other members are ready: it never takes a
/// vote that the quorum needs. So a new template repairs a member that is down if all members above it have the
/// template.
pub(crate) fn partition(members: &BTreeSet<i32>, pods: &BTreeMap<i32, RollingPod>) -> i32 {
    let replicas = members.last().map_or(0, |top| top + 1);
    let is_ready = |ordinal: &i32| pods.get(ordinal).is_some_and(|pod| pod.is_ready);
    let is_safe = |partition: &i32| {
        let mut votes = pods
            .range(partition..)
            .filter(|(_, pod)| !pod.is_updated)
            .filter(|(_, pod)| pod.is_ready);
        match (votes.next(), votes.next()) {
            (None, _) => true,
            (Some((one, _)), None) => members.iter().all(|other| other == one || is_ready(other)),
            _ => false,
        }
    };
    (0..=replicas)
        .rev()
        .take_while(is_safe)
        .last()
        .unwrap_or(replicas)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pods(states: &str) -> BTreeMap<i32, RollingPod> {
        let pod = |(ordinal, state)| {
            let (is_ready, is_updated) = match state {
                'O' => (true, false),
                'o' => (false, false),
                'N' => (true, true),
                'n' => (false, true),
                _ => return None,
            };
            Some((
                ordinal,
                RollingPod {
                    is_ready,
                    is_updated,
                },
            ))
        };
        (0..).zip(states.chars()).filter_map(pod).collect()
    }

    /// Old Pods are `O`, new ones `N`, unready ones lower case, and members without a Pod `-`.
    #[test]
    fn one_member_at_a_time_is_replaced_while_all_others_are_ready() {
        for (states, expected) in [
            // A rollout from start to end.
            ("OOO", 2),
            ("OO-", 2),
            ("OOn", 2),
            ("OON", 1),
            ("OnN", 1),
            ("ONN", 0),
            ("nNN", 0),
            ("NNN", 0),
            // A member is down: none of the others is replaced, even if a step was allowed before.
            ("oOO", 3),
            ("-OO", 3),
            ("OoO", 3),
            ("oON", 2),
            // The new template repairs the highest member, and all members if none is ready.
            ("OOo", 2),
            ("OoN", 1),
            ("ooo", 0),
            ("o", 0),
            ("O", 0),
        ] {
            let count = i32::try_from(states.len()).unwrap();
            let actual = partition(&(0..count).collect(), &pods(states));
            assert_eq!(actual, expected, "{states}");
        }
    }

    /// All Pods' templates and readiness, and the StatefulSet in the last answer.
    #[derive(Debug)]
    struct Cluster {
        pods: BTreeMap<i32, (u32, bool)>,
        template: u32,
        partition: i32,
    }

    impl Cluster {
        fn pass(&mut self, generation: u32) {
            let rolling = |(ordinal, (of, is_ready)): (&i32, &(u32, bool))| {
                let pod = RollingPod {
                    is_ready: *is_ready,
                    is_updated: *of == generation,
                };
                (*ordinal, pod)
            };
            let members = self.pods.keys().copied().collect();
            self.partition = partition(&members, &self.pods.iter().map(rolling).collect());
            self.template = generation;
        }

        /// Replaces the highest outdated Pod as the controller does; false if that takes a vote while another member
        /// is down.
        fn control(&mut self) -> bool {
            let down = self.pods.values().filter(|(_, is_ready)| !is_ready).count();
            for (_, pod) in self.pods.range_mut(self.partition..).rev() {
                if pod.0 != self.template {
                    let was_ready = pod.1;
                    *pod = (self.template, false);
                    return !was_ready || down == 0;
                }
                if !pod.1 {
                    return true;
                }
            }
            true
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        /// Templates change during a rollout, and members fail and recover; a pass sees each change before the
        /// controller acts again.
        #[test]
        fn no_roll_out_takes_a_vote_while_another_member_is_down(
            size in 1_i32..8,
            schedule in prop::collection::vec((0_u8..8, 0_i32..8), 1..60),
        ) {
            let pods = (0..size).map(|ordinal| (ordinal, (0, true))).collect();
            let mut cluster = Cluster { pods, template: 0, partition: 0 };
            let mut expected = 0;
            for (what, ordinal) in schedule {
                let pod = cluster.pods.get_mut(&(ordinal % size)).unwrap();
                match what {
                    0 => expected += 1,
                    1 => {
                        pod.1 = false;
                        cluster.pass(expected);
                    }
                    2 | 3 => cluster.pass(expected),
                    4 | 5 => prop_assert!(cluster.control(), "{cluster:?}"),
                    _ => {
                        pod.1 = true;
                        cluster.pass(expected);
                    }
                }
            }
            // Every schedule converges when the members recover.
            for _ in 0..=2 * size {
                cluster.pods.values_mut().for_each(|pod| pod.1 = true);
                cluster.pass(expected);
                prop_assert!(cluster.control(), "{cluster:?}");
            }
            cluster.pods.values_mut().for_each(|pod| pod.1 = true);
            cluster.pass(expected);
            prop_assert!(cluster.pods.values().all(|pod| pod.0 == expected), "{cluster:?}");
            prop_assert_eq!(cluster.partition, 0);
        }
    }
}
