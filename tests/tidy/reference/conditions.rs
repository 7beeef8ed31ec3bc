//! The conditions page.

use innkeeper_model::{PluginReason, reason};

use super::{check, sentence, table};

/// The start of the remedy in a reason's doc comment.
const REMEDY: &str = "Remedy: ";

const PARENTS: &str = "## Conditions of a parent

| condition | meaning |
|---|---|
| `Synced` | Whether the last pass did all its work: True (`Applied`), False after a failure, Unknown while no pass runs. |
| `Ready` | Whether all children are ready, unless the plugin sets `Ready` itself. |
| `Stalled` | After a failure: True if the host retries only after a change. Read by Flux and kpt. |
| `Reconciling` | After a failure: True if the host retries by itself. Read by Flux and kpt. |

`Stalled` and `Reconciling` have the reason and message of `Synced`, unless the plugin sets them itself.
`observedGeneration` is the generation that a condition describes.

";

const PLUGINS: &str = "
## Conditions of a Plugin

| condition | meaning |
|---|---|
| `Fetched`, `Verified`, `Compiled`, `Described`, `Granted`, `Serving` | The stages of loading a revision. A stage that succeeded has the stage's name as the reason, unless there is more to say. |
| `Ready` | True while the declared revision is active and passes run. Otherwise it has the failed stage's reason. |
| `Degraded` | True while a stage of the declared revision fails, with that stage's reason. The message says whether an earlier revision is active. |
| `RolledBack` | True after the host reactivated an earlier revision by itself. |
| `CacheFull` | True while the cache has no room for all children in a namespace; otherwise absent. |

";

#[test]
fn the_page_of_conditions_is_up_to_date() {
    let parents = reasons(reason::ALL.iter().copied());
    let plugins = reasons(PluginReason::documented());
    let body = [PARENTS, &parents, PLUGINS, &plugins].concat();
    let opening = "Every reason in the conditions of parents and Plugins, with the remedy.\n\
        `kubectl describe` shows the condition's message, which names the object, the cause and the values. `innkeeper status` lists parents that are not Ready.";
    check("conditions.md", "Conditions and reasons", opening, &body);
}

/// Returns a table of reasons, with each one's doc comment split at the remedy.
fn reasons(documented: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let rows = documented.map(|(reason, documentation)| {
        let (meaning, remedy) = documentation
            .split_once(REMEDY)
            .expect("every reason has a remedy");
        [format!("`{reason}`"), sentence(meaning), sentence(remedy)]
    });
    table(["reason", "meaning", "remedy"], rows)
}
