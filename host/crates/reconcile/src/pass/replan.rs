//! Replan: plans once more if creates met objects that the cache did not show.

use std::ops::ControlFlow;

use innkeeper_apply::Execution;
use innkeeper_model::{HashKey, Object, ObjectId, Operation};

use super::{
    apply::{Applied, read_live},
    contested::object_from,
    context::Pass,
    plan::{Planned, operations},
};

/// Reads the objects on which creates failed, and plans with their owners.
pub(super) async fn replan<'a>(
    pass: &Pass<'_>,
    mut applied: Applied<'a>,
) -> ControlFlow<Applied<'a>, Planned<'a>> {
    let Ok(execution) = &applied.result else {
        return ControlFlow::Break(applied);
    };
    let conflicts: Vec<ObjectId> = execution.conflicts().cloned().collect();
    if conflicts.is_empty() {
        return ControlFlow::Break(applied);
    }
    let planned = &mut applied.planned;
    planned.has_written |= execution.changed_children();
    let children = planned.children.to_mut();
    // Without these, the second plan would create the same children again.
    add_written(children, execution, &planned.entered.hash_key);
    for id in conflicts {
        let kind = planned
            .plan
            .operations
            .iter()
            .find(|operation| operation.child() == Some(&id))
            .and_then(Operation::kind);
        let Some(kind) = kind else { continue };
        match read_live(pass.context, kind, &id).await {
            Ok(Some(object)) => replace(children, object),
            // Deleted again in between: the second plan creates the child.
            Ok(None) => {}
            Err(error) => {
                applied.result = Err(error);
                return ControlFlow::Break(applied);
            }
        }
    }
    let mut planned = applied.planned;
    planned.plan = operations(pass, &planned);
    ControlFlow::Continue(planned)
}

/// Adds the objects that this pass has written to the observed ones.
fn add_written(children: &mut Vec<Object>, execution: &Execution, hash_key: &HashKey) {
    for (operation, result) in &execution.results {
        let (Some(kind), Ok(Some(written))) = (operation.kind(), result) else {
            continue;
        };
        if let Some(object) = object_from(written, kind, hash_key) {
            replace(children, object);
        }
    }
}

fn replace(children: &mut Vec<Object>, object: Object) {
    let id = object.id();
    children.retain(|other| other.id() != id);
    children.push(object);
}
