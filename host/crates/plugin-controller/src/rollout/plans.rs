//! Plans for waiting candidates, for the admin server.
//!
//! The Plugin state owns the plan, so a plan is dropped with the candidate.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use innkeeper_model::PluginName;
use parking_lot::Mutex;

use super::FleetPlan;

/// Candidate plans by Plugin name.
#[derive(Default)]
pub struct CandidatePlans(Mutex<BTreeMap<String, Weak<FleetPlan>>>);

impl CandidatePlans {
    /// The path prefix on the admin server; the Plugin name follows.
    pub const PATH: &str = "/debug/plans/";

    /// Returns the path for a Plugin's plan.
    pub(crate) fn path(name: &PluginName) -> String {
        format!("{}{name}", Self::PATH)
    }

    /// Shows a plan for as long as the returned value lives.
    pub(crate) fn keep(&self, plan: FleetPlan) -> Arc<FleetPlan> {
        let plan = Arc::new(plan);
        let mut plans = self.0.lock();
        plans.retain(|_, plan| plan.strong_count() > 0);
        plans.insert(plan.plugin.clone(), Arc::downgrade(&plan));
        plan
    }

    /// Returns a Plugin's candidate plan as JSON, if a candidate waits.
    pub fn json(&self, plugin: &str) -> Option<String> {
        let plan = self.0.lock().get(plugin)?.upgrade()?;
        Some(format!("{:#}\n", plan.json()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_shown_until_its_candidate_goes() {
        let plans = CandidatePlans::default();
        let plan = |revision: &str| {
            let revision = revision.to_owned();
            plans.keep(FleetPlan::new("web".to_owned(), revision, None, 0))
        };
        let first = plan("one");
        let second = plan("two");
        drop(first);
        assert!(plans.json("web").unwrap().contains("\"revision\": \"two\""));
        assert_eq!(plans.json("other"), None);
        drop(second);
        assert_eq!(plans.json("web"), None);
    }
}
