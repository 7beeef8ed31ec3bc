//! Plugins that want the same kind of parents: one of them serves, and when that changes each gets its pass.

use std::collections::BTreeSet;

use innkeeper_model::{Object, ObjectId, PluginName};
use tracing::info;

use super::{Known, Manager, declared};
use crate::{
    lifecycle::{Problem, Stage},
    rivals::{Rival, Rivals, Seniority},
};

impl Manager {
    /// Runs an operation on the rivals, and triggers the affected Plugins.
    pub(super) fn among_rivals<T>(&self, tell: impl FnOnce(&mut Rivals) -> T) -> T {
        let mut rivals = self.rivals.lock();
        let told = tell(&mut rivals);
        if rivals.concerns_somebody() {
            self.contest.notify_one();
        }
        told
    }

    /// Learns the kinds of all Plugins at the start, so that the order of their first passes decides nothing.
    pub(super) fn expect_all(&self) {
        let ids = self.registration.parents();
        let plugins = ids.iter().filter_map(|id| self.registration.parent(id));
        for plugin in plugins.filter(|plugin| !plugin.is_deleting()) {
            // The Plugin's own pass reports an invalid spec.
            let Ok((declared, created)) = declared(&plugin) else {
                continue;
            };
            let kinds: BTreeSet<_> = declared.charter.grants.parents.into_keys().collect();
            let seniority = Seniority::Plugin(created, declared.name);
            self.among_rivals(|rivals| rivals.expect(seniority, kinds));
        }
    }

    /// Stops a plugin whose kinds of parents an older one can serve.
    pub(super) async fn give_way(&self, name: &PluginName, known: &mut Known) {
        let rival = self.rivals.lock().in_the_way_of(name);
        if let Some(Rival { kind, by }) = rival {
            info!(plugin = %name, %kind, %by, "an older Plugin serves from now on");
            self.stop(name, known).await;
        }
    }

    /// Releases the kinds that a Plugin could not take.
    pub(super) fn withdraw_unless_it_waits(&self, id: &ObjectId, known: &Known) {
        let mut refusals = known.refusals.values().chain(known.lost.values());
        let waits = refusals.any(super::Refusal::is_for_a_rival);
        if let Ok(name) = PluginName::new(&id.name)
            && known.running.is_none()
            && !waits
            && !self.parts.files.contains_key(&name)
        {
            self.among_rivals(|rivals| rivals.withdraw(&name));
        }
    }

    /// Returns the problem of a Plugin whose name belongs to a file of this host.
    pub(super) fn name_taken(&self, object: &Object) -> Option<(&PluginName, Problem)> {
        let name = PluginName::new(&object.name).ok()?;
        let (name, _) = self.parts.files.get_key_value(&name)?;
        let problem = Problem {
            stage: Stage::Serving,
            reason: "NameTaken".to_owned(),
            message: format!(
                "this host serves a file under the name {name}: give the Plugin another name, or run the host without the file"
            ),
        };
        Some((name, problem))
    }
}
