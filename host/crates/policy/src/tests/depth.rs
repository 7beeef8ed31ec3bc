//! Children that the same plugin serves as parents.

use super::*;

/// Checks an answer with one child of the plugin's own kind; `granted` is the granted depth, `depth` that of the
/// parent.
fn verdict(granted: u32, depth: u32) -> Result<(), String> {
    let mut scene = scene();
    let web = GroupKind::new("example.dev", "Web");
    scene.grants.children.get_mut(&web).unwrap().depth = granted;
    let rules = Rules {
        depth,
        ..scene.rules()
    };
    let answer = desired(vec![child("example.dev/v1", "Web", "copy")]);
    check(answer, &rules)
        .map(drop)
        .map_err(|rejection| format!("{}: {}", rejection.reason(), rejection.message()))
}

#[test]
fn a_child_of_an_own_kind_of_parents_needs_a_grant_with_a_depth() {
    expect![[r#"ChildForbidden: child "copy": the plugin reconciles example.dev/v1 Web itself, so each such child could make further ones: grant children of this kind with depth: 1 or more, or leave the child out"#]]
        .assert_eq(&verdict(0, 0).unwrap_err());
    let grants = Grants::for_file(&manifest());
    assert!(grants.children.values().all(|grant| grant.depth == 0));
}

#[test]
fn an_object_at_the_granted_depth_has_no_children_of_its_kind() {
    for (granted, depth, allowed) in [
        (1, 0, true),
        (1, 1, false),
        (3, 2, true),
        (3, 3, false),
        (3, 4, false),
        (u32::MAX, u32::MAX, false),
    ] {
        assert_eq!(
            verdict(granted, depth).is_ok(),
            allowed,
            "{granted} {depth}"
        );
    }
    expect![[r#"ChildForbidden: child "copy": Web.example.dev demo/shop is at depth 1, so it may have no children of kind example.dev/v1 Web: raise the depth in the grant, which is 1, or leave the child out"#]]
        .assert_eq(&verdict(1, 1).unwrap_err());
}

/// Without the bound, an object with two such children becomes 2^24 objects in 24 generations.
#[test]
fn the_default_ends_a_fork_bomb_at_its_first_object_and_a_grant_at_its_depth() {
    for (granted, objects) in [(0, 1), (1, 3), (5, 63)] {
        let mut generation = 1;
        let mut all = 1;
        let mut depth = 0;
        while verdict(granted, depth).is_ok() {
            generation *= 2;
            all += generation;
            depth += 1;
        }
        assert_eq!(all, objects, "with depth {granted}");
    }
}

/// Two plugins that create each other's parents have no own kinds among their children.
#[test]
fn a_ring_of_plugins_ends_at_the_largest_depth_or_at_that_of_the_grant() {
    let verdict = |granted: u32, depth: u32| {
        let mut scene = scene();
        let kind = kind_of_child("other.dev/v1", "Peer", true);
        let grant = ChildGrant {
            depth: granted,
            ..ChildGrant::default()
        };
        scene.grants.children.insert(kind.kind.group_kind(), grant);
        scene.manifest.children.push(kind);
        let rules = Rules {
            depth,
            ..scene.rules()
        };
        let answer = desired(vec![child("other.dev/v1", "Peer", "one")]);
        check(answer, &rules).map(drop)
    };
    for (granted, depth, allowed) in [
        (0, 0, true),
        (0, DEPTH_MAX - 1, true),
        (0, DEPTH_MAX, false),
        (2, 1, true),
        (2, 2, false),
    ] {
        let actual = verdict(granted, depth);
        assert_eq!(actual.is_ok(), allowed, "{granted} {depth}: {actual:?}");
    }
    expect!["child \"one\": Web.example.dev demo/shop is at depth 16, so it may have no children of kind other.dev/v1 Peer, which another plugin serves: end the ring of plugins that make parents of each other"]
        .assert_eq(verdict(0, DEPTH_MAX).unwrap_err().message());
}

#[test]
fn other_kinds_need_no_depth() {
    let mut scene = scene();
    for grant in scene.grants.children.values_mut() {
        grant.depth = 0;
    }
    let rules = Rules {
        depth: 9,
        ..scene.rules()
    };
    assert!(check(desired(vec![config_map("a")]), &rules).is_ok());
}
