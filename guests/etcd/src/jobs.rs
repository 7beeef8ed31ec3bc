//! The Jobs that talk to etcd for the plugin, and their results.
//!
//! The etcd image has no shell, so the Pod brings a static busybox. A script first reads the members and then makes
//! only the missing changes: it may run twice, and late.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_kit::prelude::*;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{Affinity, Container, EnvVar, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use crate::{
    Kinds,
    cluster::{Cluster, MEMBERS_MAX},
    container::{USER, container, shell, tools},
    record::{Record, member_id},
    replace::{End, Next, Operation, SeenJob},
    tls,
};

/// The label on a Job: its step.
const OPERATION: &str = "etcd.ydzs.io/operation";
/// The label on a Job: the ordinal of the member that it changes.
const ORDINAL: &str = "etcd.ydzs.io/ordinal";
/// The label on a Job: the ID of the member that it removes.
const MEMBER_ID: &str = "etcd.ydzs.io/member-id";
/// The label on a Job: the number of operations that had ended before it.
const SEQUENCE: &str = "etcd.ydzs.io/sequence";

/// The container with etcdctl.
pub(crate) const CONTAINER: &str = "etcdctl";

/// The pause between a failed Job and the next one; by then, the Job controller has retried the Pod with its
/// backoff.
const PAUSE: Duration = Duration::from_mins(1);

/// Maximum delay between a Job's end and the result: the host can see the Job before the Pod.
const RESULT_WAIT: Duration = Duration::from_mins(1);

/// Longest message from a failed Job in a condition, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// The start of each script.
const FUNCTIONS: &str = r#"fail() { printf %s "$1" >/dev/termination-log; echo "$1" >&2; exit 1; }
ctl() { etcdctl --endpoints="$endpoint" --dial-timeout=5s --command-timeout=20s "$@"; }
check_user() {
  case "$(ctl "$@" 2>&1)" in
    *"user name is empty"* | *"permission denied"*)
      fail "authentication is on: give Jobs a client certificate of the user root, by tls.client, or run etcdctl auth disable" ;;
  esac
}
"#;

/// The start of a script about members. It picks an endpoint that answers with a quorum, because etcd 3.4 lists its
/// members without one, and reads the list: ID, status, name, peer URLs, client URLs, separated by comma and space.
const PRELUDE: &str = r#"chosen=
for endpoint in $ENDPOINTS; do
  if ctl get innkeeper --keys-only >/dev/null; then chosen=1; break; fi
  check_user get innkeeper --keys-only
done
[ "$chosen" ] || fail "no member answers with a quorum"
list=$(ctl member list)
"#;

const SURVEY: &str = r#"result=
while IFS=, read -r id status name peers rest; do
  peers=${peers# }
  case " $PEER_URLS " in
    *" $peers "*) result="$result$id $peers
" ;;
    *) fail "etcd has a member from outside this cluster: $id with $peers; remove it with etcdctl member remove" ;;
  esac
done <<END
$list
END
printf %s "$result" >/dev/termination-log
"#;

/// A member that answers still has data, and would not survive the removal.
const REMOVE: &str = r#"found=
while IFS=, read -r id rest; do
  if [ "$id" = "$MEMBER_ID" ]; then found=1; fi
done <<END
$list
END
[ "$found" ] || exit 0
if etcdctl --endpoints="$CLIENT_URL" --command-timeout=5s endpoint status >/dev/null 2>&1; then
  fail "$MEMBER answers, so it is not removed"
fi
ctl member remove "$MEMBER_ID"
"#;

/// An identity that has been started may have voted, so a member without data must not use it.
const ADD: &str = r#"while IFS=, read -r id status name peers rest; do
  if [ "${peers# }" = "$PEER_URL" ]; then
    [ "$status" = " unstarted" ] || fail "etcd has $MEMBER with the ID $id already"
    exit 0
  fi
done <<END
$list
END
ctl member add "$MEMBER" --peer-urls="$PEER_URL"
"#;

/// An observed plugin Job.
#[derive(Clone, Debug)]
pub(crate) struct ClusterJob {
    pub(crate) name: String,
    operation: Operation,
    /// The end; `None` while the Job runs or is being deleted.
    end: Option<Ended>,
}

#[derive(Clone, Debug)]
struct Ended {
    /// Milliseconds since the Unix epoch.
    at_ms: u64,
    has_failed: bool,
    /// The termination message, or else the Job's message.
    message: Option<String>,
}

/// A cluster's observed Jobs by sequence number.
pub(crate) type ClusterJobs = BTreeMap<u64, ClusterJob>;

/// Reads the Jobs, and the messages of those that have ended.
pub(crate) fn read(
    request: &Request,
    host: &dyn Host,
    cluster: &Cluster<'_>,
) -> Result<ClusterJobs, Fault> {
    let observed = request.children.all::<ObservedJob>()?;
    // Most passes have no Job, and save the read of Pods.
    if observed.is_empty() {
        return Ok(ClusterJobs::new());
    }
    let selector = labels::selector_text(&base_labels("etcd", cluster.name, "operation"));
    let pods = host.list::<JobPod>(cluster.namespace, &selector)?;
    let jobs = observed.iter().filter_map(|job| {
        let labels = job.metadata.labels.as_ref()?;
        let sequence = labels.get(SEQUENCE)?.parse().ok()?;
        Some((sequence, parse(job, &pods, operation(labels)?)?))
    });
    Ok(jobs.collect())
}

fn operation(labels: &BTreeMap<String, String>) -> Option<Operation> {
    let ordinal = || labels.get(ORDINAL)?.parse().ok();
    match labels.get(OPERATION)?.as_str() {
        "survey" => Some(Operation::Survey),
        "remove" => Some(Operation::Remove {
            ordinal: ordinal()?,
            id: member_id(labels.get(MEMBER_ID)?)?,
        }),
        "add" => Some(Operation::Add {
            ordinal: ordinal()?,
        }),
        _ => None,
    }
}

fn parse(job: &ObservedJob, pods: &[JobPod], operation: Operation) -> Option<ClusterJob> {
    let run = JobRun::new(job);
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let is_over = run.phase.is_final() && job.metadata.deletion_timestamp.is_none();
    let end = is_over.then(|| Ended {
        at_ms: run.ended.as_ref().map_or(0, milliseconds),
        has_failed: run.phase == JobPhase::Failed,
        message: job::termination_message(uid, pods, CONTAINER)
            .map(str::to_owned)
            .or(run.message),
    });
    Some(ClusterJob {
        name: job.metadata.name.clone()?,
        operation,
        end,
    })
}

/// An API time in milliseconds since the Unix epoch.
pub(crate) fn milliseconds(time: &Time) -> u64 {
    u64::try_from(time.0.as_millisecond()).unwrap_or_default()
}

/// The Job facts that a replacement uses.
pub(crate) struct SeenJobs {
    pub(crate) job: Option<SeenJob>,
    pub(crate) is_pausing: bool,
    pub(crate) is_surveyed: bool,
    /// Time until something changes without an event.
    pub(crate) wait: Option<Duration>,
}

/// The Job with the record's sequence number, and the one before it. Asks for the time only if it matters.
pub(crate) fn seen(
    jobs: &ClusterJobs,
    cluster: &Cluster<'_>,
    record: &Record,
    now_ms: &dyn Fn() -> u64,
) -> SeenJobs {
    let remaining = |ended: &Ended, time: Duration| {
        let since = Duration::from_millis(now_ms().saturating_sub(ended.at_ms));
        time.checked_sub(since)
            .filter(|remaining| !remaining.is_zero())
    };
    if let Some(current) = jobs.get(&record.sequence) {
        let mut wait = None;
        let end = current.end.as_ref().and_then(|ended| {
            let result = result(cluster, &current.operation, ended);
            if result.is_none() {
                wait = remaining(ended, RESULT_WAIT);
            }
            result.or_else(|| wait.is_none().then_some(End::Failed))
        });
        let operation = current.operation.clone();
        return SeenJobs {
            job: Some(SeenJob { operation, end }),
            is_pausing: false,
            is_surveyed: false,
            wait,
        };
    }
    let last = record
        .sequence
        .checked_sub(1)
        .and_then(|sequence| jobs.get(&sequence));
    let recent = last.and_then(|last| {
        let end = last.end.as_ref()?;
        Some((last, end, remaining(end, PAUSE)?))
    });
    let has_failed = recent.is_some_and(|(last, end, _)| {
        result(cluster, &last.operation, end).is_none_or(|end| end == End::Failed)
    });
    let is_survey = recent.is_some_and(|(last, ..)| last.operation == Operation::Survey);
    SeenJobs {
        job: None,
        is_pausing: has_failed,
        is_surveyed: is_survey && !has_failed,
        wait: recent.map(|(.., remaining)| remaining),
    }
}

/// A Job's result; `None` if it is unknown.
fn result(cluster: &Cluster<'_>, operation: &Operation, ended: &Ended) -> Option<End> {
    if ended.has_failed {
        return Some(End::Failed);
    }
    if *operation != Operation::Survey {
        return Some(End::Succeeded(BTreeMap::new()));
    }
    let line = |line: &str| {
        let (id, url) = line.split_once(' ')?;
        let ordinal = (0..MEMBERS_MAX).find(|ordinal| cluster.peer_url(*ordinal) == url)?;
        Some((ordinal, member_id(id)?))
    };
    let ids: Option<BTreeMap<i32, String>> = ended.message.as_deref()?.lines().map(line).collect();
    // An empty list is not a list: etcd has at least the member that answers.
    ids.filter(|ids| !ids.is_empty()).map(End::Succeeded)
}

/// Name and message of the last failed Job, unless another one has started since.
pub(crate) fn failure(jobs: &ClusterJobs, record: &Record) -> Option<String> {
    let last = jobs.get(&record.sequence.checked_sub(1)?)?;
    let message = last.end.as_ref()?.message.as_deref().unwrap_or("no result");
    let message = job::tail(message.trim(), MESSAGE_CHARS_MAX);
    Some(format!("Job {} failed: {message}", last.name))
}

/// The answer's Jobs: the one to run, and the observed ones whose results still count.
pub(crate) fn children(
    cluster: &Cluster<'_>,
    jobs: &ClusterJobs,
    record: &Record,
    next: &Next,
) -> Vec<Child> {
    let operation = match next {
        Next::Idle => return Vec::new(),
        Next::Run(operation) => Some(operation),
        Next::Write(_) | Next::Wait(_) => None,
    };
    let key = |sequence: u64| format!("operation-{sequence}");
    // The previous Job stays too: a failure delays the next one, and a survey answers for a while.
    let held_jobs = jobs
        .range(record.sequence.saturating_sub(1)..)
        .map(|(sequence, observed)| {
            let identity = Job {
                metadata: metadata(&*observed.name, &BTreeMap::new()),
                ..Default::default()
            };
            Kinds::child(key(*sequence), &identity).hold()
        });
    let due = operation
        .filter(|_| !jobs.contains_key(&record.sequence))
        .map(|operation| Kinds::child(key(record.sequence), &job(cluster, record, operation)));
    held_jobs.chain(due).collect()
}

/// The name of an operation's Job.
pub(crate) fn name(cluster: &Cluster<'_>, sequence: u64, operation: &Operation) -> String {
    let name = cluster.name;
    match operation {
        Operation::Survey => format!("{name}-survey-{sequence}"),
        Operation::Remove { ordinal, .. } => format!("{name}-remove-{ordinal}-{sequence}"),
        Operation::Add { ordinal } => format!("{name}-add-{ordinal}-{sequence}"),
    }
}

fn job(cluster: &Cluster<'_>, record: &Record, operation: &Operation) -> Job {
    let mut labels = cluster.labels("operation");
    let mut label = |key: &str, value: String| labels.insert(key.to_owned(), value);
    label(SEQUENCE, record.sequence.to_string());
    let (kind, ordinal) = match operation {
        Operation::Survey => ("survey", None),
        Operation::Remove { ordinal, id } => {
            label(MEMBER_ID, id.clone());
            ("remove", Some(*ordinal))
        }
        Operation::Add { ordinal } => ("add", Some(*ordinal)),
    };
    label(OPERATION, kind.to_owned());
    if let Some(ordinal) = ordinal {
        label(ORDINAL, ordinal.to_string());
    }
    Job {
        metadata: metadata(name(cluster, record.sequence, operation), &labels),
        spec: Some(JobSpec {
            backoff_limit: Some(3),
            active_deadline_seconds: Some(600),
            template: template(
                cluster,
                labels,
                &script(operation),
                environment(cluster, record, operation),
            ),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn script(operation: &Operation) -> String {
    let script = match operation {
        Operation::Survey => SURVEY,
        Operation::Remove { .. } => REMOVE,
        Operation::Add { .. } => ADD,
    };
    format!("{PRELUDE}{script}")
}

/// The Pod template for a script with etcdctl.
pub(crate) fn template(
    cluster: &Cluster<'_>,
    labels: BTreeMap<String, String>,
    script: &str,
    mut env: Vec<EnvVar>,
) -> PodTemplateSpec {
    let (certificates, mounts) = tls::for_job(cluster);
    env.extend(tls::variables(cluster));
    let mut main = container(
        cluster,
        CONTAINER,
        &cluster.image,
        shell(&format!("{FUNCTIONS}{script}")),
    );
    main.volume_mounts.get_or_insert_default().extend(mounts);
    let volumes = [pod::empty_dir("tools")].into_iter().chain(certificates);
    let spec = PodSpec {
        restart_policy: Some("Never".to_owned()),
        init_containers: Some(vec![tools(cluster)]),
        containers: vec![Container {
            env: Some(env),
            // The end of the log, if the script reports nothing else.
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            ..main
        }],
        volumes: Some(volumes.collect()),
        ..pod::restricted(Some(USER), &cluster.spec.image_pull_secrets)
    };
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            ..Default::default()
        }),
        spec: Some(place(nodes(cluster).as_ref(), spec)),
    }
}

/// The members' placement without Pod affinity rules: a rule that separates members would keep Jobs away from every
/// node with a member.
fn nodes(cluster: &Cluster<'_>) -> Option<PodTemplate> {
    let pod_spec = cluster.spec.pod_template.as_ref()?.spec.clone()?;
    let affinity = pod_spec.affinity.map(|affinity| Affinity {
        node_affinity: affinity.node_affinity,
        ..Default::default()
    });
    Some(PodTemplate {
        metadata: None,
        spec: Some(Placement {
            affinity,
            ..pod_spec
        }),
    })
}

/// A script's input.
fn environment(cluster: &Cluster<'_>, record: &Record, operation: &Operation) -> Vec<EnvVar> {
    let (victim, own) = match operation {
        Operation::Survey => {
            let urls: Vec<String> = record
                .members
                .iter()
                .map(|ordinal| cluster.peer_url(*ordinal))
                .collect();
            (None, vec![pod::variable("PEER_URLS", urls.join(" "))])
        }
        Operation::Remove { ordinal, id } => {
            let own = vec![
                pod::variable("MEMBER", cluster.member(*ordinal)),
                pod::variable("MEMBER_ID", id),
                pod::variable("CLIENT_URL", cluster.client_url(*ordinal)),
            ];
            (Some(ordinal), own)
        }
        Operation::Add { ordinal } => {
            let own = vec![
                pod::variable("MEMBER", cluster.member(*ordinal)),
                pod::variable("PEER_URL", cluster.peer_url(*ordinal)),
            ];
            (Some(ordinal), own)
        }
    };
    let endpoints = endpoints(cluster, record, victim.copied());
    [endpoints].into_iter().chain(own).collect()
}

/// The members' addresses, except for one member's.
pub(crate) fn endpoints(cluster: &Cluster<'_>, record: &Record, but: Option<i32>) -> EnvVar {
    let endpoints: Vec<String> = record
        .registered()
        .into_iter()
        .filter(|ordinal| Some(*ordinal) != but)
        .map(|ordinal| cluster.client_url(ordinal))
        .collect();
    pod::variable("ENDPOINTS", endpoints.join(" "))
}
