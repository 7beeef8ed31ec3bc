//! State that an earlier process left in the Plugin status.

use super::*;

/// A restart would otherwise write the status twice.
#[test]
fn the_conditions_of_an_earlier_process_stay_until_an_attempt_has_ended() {
    let declared = declare(json!({}));
    let mut state = PluginState::new(&object("one", 2), None);
    assert!(!state.keeps_conditions(Some(2)));
    let (load, _reporter) = loading(&declared, None);
    state.loading = Some(load);
    assert!(state.keeps_conditions(Some(2)));
    assert!(!state.keeps_conditions(Some(3)));
    state.record_load(failed_load(&declared, failure(Stage::Fetched)));
    assert!(!state.keeps_conditions(Some(2)));
}

#[test]
fn a_plugin_that_was_created_again_has_no_state_of_its_predecessor() {
    let state = PluginState::new(&object("one", 1), None);
    assert!(state.is_of(&object("one", 2)));
    assert!(!state.is_of(&object("two", 1)));
}

/// Otherwise a status from another host version would lose the revisions that can become active again.
#[test]
fn an_unreadable_field_of_a_stored_status_leaves_the_others_readable() {
    let key = HashKey::new([7; 32]);
    let history = history(&["a", "b"]);
    let plugin = object("one", 1);
    let mut status = json!({
        "observedGeneration": 1,
        "history": history.0,
        "historySeal": history.seal(&plugin.uid, &key),
    });
    for (field, unreadable) in [
        ("limits", json!({"memory": 64})),
        (
            "candidate",
            json!({"revision": "a", "digest": "b", "verdict": "Pending"}),
        ),
        ("conditions", json!([{"type": "Serving"}])),
        ("parents", json!(7)),
        ("unknown", json!({})),
    ] {
        status[field] = unreadable;
    }
    let state = PluginState::new(&with_status("one", 1, &status), Some(&key));
    assert_eq!(state.history, history);
    assert_eq!(state.reported, Some(1));
    // An unreadable history is none.
    status["history"] = json!([{}]);
    let state = PluginState::new(&with_status("one", 1, &status), Some(&key));
    assert_eq!(state.history, History::default());
    assert_eq!(state.reported, Some(1));
}

/// An edited status, or another Plugin's status, must not bring back revisions.
#[test]
fn a_history_without_the_seal_for_the_plugin_resumes_nothing() {
    let key = HashKey::new([7; 32]);
    let history = history(&["a"]);
    let seal = history.seal(&object("one", 1).uid, &key);
    let status = json!({"history": history.0, "historySeal": seal});
    let declared = declare(json!({}));
    for (uid, key, step) in [
        ("one", Some(key.clone()), Some(Action::Resume(digest("a")))),
        ("two", Some(key), Some(Action::Load)),
        ("one", Some(HashKey::new([8; 32])), Some(Action::Load)),
        ("one", None, Some(Action::Load)),
    ] {
        let state = PluginState::new(&with_status(uid, 1, &status), key.as_ref());
        assert_eq!(next_step(&state, &declared, None), step, "{uid} {key:?}");
    }
}

/// Otherwise a definition with a new limit rejects every other write to a status from an earlier host.
#[test]
fn the_limits_of_an_earlier_host_may_lack_new_ones() {
    let status = json!({"limits": {"memory": "64Mi"}});
    let limits = status_of(&with_status("one", 1, &status)).limits.unwrap();
    assert_eq!(limits.memory, "64Mi");
    let definition = Value::Object(resource::crd());
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/limits";
    let limits = definition.pointer(schema).unwrap();
    assert_eq!(limits.get("required"), None, "{limits:#}");
    assert!(!limits.to_string().contains("\"default\""), "{limits:#}");
}

/// An entry from another host version may have further fields: the seal covers the stored JSON.
#[test]
fn the_seal_holds_for_entries_with_further_fields() {
    let key = HashKey::new([7; 32]);
    let history = history(&["a"]);
    let mut entries = json!(history.0);
    entries[0]["later"] = json!({"z": 1, "a": 2});
    let uid = object("one", 1).uid;
    let hash = |usage: &str| key.hash(usage, &[&uid.0, &entries.to_string()]);
    let unsealed = |seal: String| {
        let status = json!({"history": entries, "historySeal": seal});
        PluginState::new(&with_status("one", 1, &status), Some(&key)).history
    };
    assert_eq!(unsealed(format!("v1:{}", hash("history"))), history);
    let none = History::default();
    for wrong in [format!("v2:{}", hash("history")), hash("history"), hash("")] {
        assert_eq!(unsealed(wrong.clone()), none, "{wrong}");
    }
}

/// Bytes that were loaded without a signature must not become active after the Plugin requires one.
#[test]
fn a_loaded_component_serves_only_a_declaration_that_verifies_it_alike() {
    let declare = |verify: Value| declare(json!({"verify": verify}));
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let before = declare(json!({"keys": [key]}));
    let mut state = state(&before, ["a", "-"]);
    let described = add_component(&mut state);
    let has_component = |now: &Declared| state.component(now, described.digest()).is_some();
    assert!(has_component(&before));
    let mut other = before.clone();
    other.config.insert("size".to_owned(), 1.into());
    assert!(has_component(&other));
    other.keys.clear();
    assert!(!has_component(&other));
    assert!(!has_component(&declare(
        json!({"keys": [key], "name": "web"})
    )));
    assert!(state.component(&before, &Digest::hash(b"x")).is_none());
}
