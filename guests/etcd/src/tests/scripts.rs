//! Runs the Jobs' scripts in this machine's shells, with a function instead of etcdctl.

use std::{
    fs,
    process::{Command, id},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{
    inspection::inspection, replacement::addition, replacement::removal, replacement::survey, *,
};

/// etcdctl: members on `DOWN` endpoints do not answer, `LIST` is the member list, and changes are printed.
const ETCDCTL: &str = r#"etcdctl() {
  case "$*" in
    --endpoints="$DOWN"\ *) return 1 ;;
    *" $DENIED") echo "Error: etcdserver: user name is empty" >&2; return 1 ;;
    *" get innkeeper --keys-only") echo innkeeper ;;
    *" member list") printf '%s\n' "$LIST" ;;
    *" endpoint status") [ "$ANSWERS" ] ;;
    *" alarm list") printf '%s' "$ALARMS" ;;
    *) all="$*"; echo "${all%% *} ${all#*=20s }" ;;
  esac
}
"#;

const FIRST: &str = "http://demo-0.demo.default.svc:2379";

/// The member list that etcdctl prints.
fn list(members: &[(&str, &str)]) -> String {
    let line = |(id, name): &(&str, &str)| {
        let status = if *id == "f1" { "unstarted" } else { "started" };
        let shown = if *id == "f1" { "" } else { name };
        format!(
            "{id}, {status}, {shown}, https://{name}.demo.default.svc:2380, http://{name}:2379, false"
        )
    };
    members.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Runs a Job's script with additional variables; returns exit code, output and termination message.
fn run(shell: &[&str], job: &Child, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let message = std::env::temp_dir().join(format!("innkeeper-etcd-{}-{number}", id()));
    fs::write(&message, "").unwrap();
    let job = Value::from(job.object.clone());
    let template = job
        .pointer("/spec/jobTemplate/spec/template")
        .unwrap_or_else(|| &job["spec"]["template"]);
    let container = &template["spec"]["containers"][0];
    let script = container["command"][3]
        .as_str()
        .unwrap()
        .replace("/dev/termination-log", message.to_str().unwrap());
    let environment = container["env"].as_array().unwrap().iter().map(|variable| {
        (
            variable["name"].as_str().unwrap(),
            variable["value"].as_str().unwrap(),
        )
    });
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .arg("-ec")
        .arg(format!("{ETCDCTL}{script}"))
        .envs([
            ("DOWN", ""),
            ("ANSWERS", ""),
            ("ALARMS", ""),
            ("DENIED", "none"),
        ])
        .envs(environment)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let written = fs::read_to_string(&message).unwrap();
    fs::remove_file(&message).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (
        output.status.code(),
        text.trim().to_owned(),
        written.trim().to_owned(),
    )
}

/// Runs the script in each shell: sh, and the tools image's if this machine has it.
fn check(job: &Child, variables: &[(&str, &str)], expected: (i32, &str, &str)) {
    let has_busybox = Command::new("busybox")
        .arg("true")
        .status()
        .is_ok_and(|status| status.success());
    let shells: [&[&str]; 2] = [&["sh"], &["busybox", "sh"]];
    for shell in shells.into_iter().take(1 + usize::from(has_busybox)) {
        let (code, output, message) = run(shell, job, variables);
        let actual = (code, &*output, &*message);
        assert_eq!(
            actual,
            (Some(expected.0), expected.1, expected.2),
            "{shell:?} {variables:?}"
        );
    }
}

const ALL: [(&str, &str); 3] = [("a1", "demo-0"), ("b2", "demo-1"), ("c3", "demo-2")];

#[test]
fn a_survey_lists_the_members_of_this_cluster() {
    let job = survey();
    let members = "a1 https://demo-0.demo.default.svc:2380\n\
                 b2 https://demo-1.demo.default.svc:2380\n\
                 c3 https://demo-2.demo.default.svc:2380";
    check(&job, &[("LIST", &list(&ALL))], (0, "", members));
    check(
        &job,
        &[("LIST", &list(&ALL)), ("DOWN", FIRST)],
        (0, "", members),
    );
    let foreign = list(&[("a1", "demo-0"), ("d4", "other-0")]);
    let problem = "etcd has a member from outside this cluster: d4 with https://other-0.demo.default.svc:2380; remove it \
                   with etcdctl member remove";
    check(&job, &[("LIST", &foreign)], (1, "", problem));
    let nobody = [("ENDPOINTS", FIRST), ("DOWN", FIRST)];
    check(&job, &nobody, (1, "", "no member answers with a quorum"));
}

#[test]
fn a_removal_is_of_one_identity_that_does_not_answer() {
    let job = removal();
    let call = format!("--endpoints={FIRST} member remove c3");
    check(&job, &[("LIST", &list(&ALL))], (0, &call, ""));
    check(&job, &[("LIST", &list(&ALL[..2]))], (0, "", ""));
    // The member has a new identity already.
    let renewed = list(&[ALL[0], ALL[1], ("f1", "demo-2")]);
    check(&job, &[("LIST", &renewed)], (0, "", ""));
    let alive = [("LIST", &*list(&ALL)), ("ANSWERS", "yes")];
    check(
        &job,
        &alive,
        (1, "", "demo-2 answers, so it is not removed"),
    );
}

#[test]
fn an_addition_takes_no_identity_that_was_started() {
    let job = addition();
    let call = format!(
        "--endpoints={FIRST} member add demo-2 --peer-urls=https://demo-2.demo.default.svc:2380"
    );
    check(&job, &[("LIST", &list(&ALL[..2]))], (0, &call, ""));
    let added = list(&[ALL[0], ALL[1], ("f1", "demo-2")]);
    check(&job, &[("LIST", &added)], (0, "", ""));
    let problem = "etcd has demo-2 with the ID c3 already";
    check(&job, &[("LIST", &list(&ALL))], (1, "", problem));
}

#[test]
fn an_inspection_asks_one_member_for_all_alarms() {
    let job = inspection();
    let alarm = "memberID:10501334649042878790 alarm:NOSPACE";
    let expected = format!("inspected\n{alarm}");
    check(&job, &[], (0, "", "inspected"));
    check(
        &job,
        &[("ALARMS", alarm), ("DOWN", FIRST)],
        (0, "", &expected),
    );
    let nobody = [("ENDPOINTS", FIRST), ("DOWN", FIRST)];
    check(&job, &nobody, (1, "", "no member answers"));
}

/// etcd 3.4 requires a user for keys, and 3.6 for alarms too.
#[test]
fn authentication_is_told() {
    let message = "authentication is on: give Jobs a client certificate of the user root, by tls.client, or run etcdctl auth \
                   disable";
    for (job, denied) in [
        (survey(), "get innkeeper --keys-only"),
        (removal(), "get innkeeper --keys-only"),
        (addition(), "get innkeeper --keys-only"),
        (inspection(), "alarm list"),
    ] {
        check(&job, &[("DENIED", denied)], (1, "", message));
    }
}
