//! The Pod Security Standards, as rules for the Pods and Pod templates of children.
//!
//! The rules are those of <https://kubernetes.io/docs/concepts/security/pod-security-standards/> in the version of
//! Kubernetes 1.34. Of the rules for Windows there is only the one that forbids HostProcess containers: the exemptions of
//! the level `restricted` for Windows Pods do not apply, so such Pods need the level `baseline`.
//! The rules see the fields that the plugin states and those of an object that it adopts, and only kinds of Kubernetes: a
//! custom kind can make any Pod.

use std::collections::BTreeSet;

use innkeeper_model::GroupKind;
use serde_json::{Map, Value};

/// A level of the Pod Security Standards, from the strictest to the weakest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodSecurity {
    /// Follows current practice for hardened Pods.
    #[default]
    Restricted,
    /// Prevents known escalations of privileges.
    Baseline,
    /// Allows every Pod, which includes Pods that take over their node.
    Privileged,
}

impl PodSecurity {
    /// Returns the word for the level in `spec.grants.podSecurity`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Baseline => "baseline",
            Self::Privileged => "privileged",
        }
    }
}

/// The kinds whose objects are or make Pods, with the path to the Pod template.
const POD_KINDS: [(&str, &str, &[&str]); 9] = [
    ("", "Pod", &[]),
    ("", "PodTemplate", &["template"]),
    ("", "ReplicationController", &["spec", "template"]),
    ("apps", "DaemonSet", &["spec", "template"]),
    ("apps", "Deployment", &["spec", "template"]),
    ("apps", "ReplicaSet", &["spec", "template"]),
    ("apps", "StatefulSet", &["spec", "template"]),
    (
        "batch",
        "CronJob",
        &["spec", "jobTemplate", "spec", "template"],
    ),
    ("batch", "Job", &["spec", "template"]),
];

/// The capabilities that the level `baseline` allows to add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The sysctls that are isolated from the other Pods of the node.
const SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];

/// The SELinux types of containers.
const SELINUX_TYPES: [&str; 5] = [
    "",
    "container_engine_t",
    "container_init_t",
    "container_kvm_t",
    "container_t",
];

/// The profiles of seccomp and AppArmor other than none.
const PROFILES: [&str; 2] = ["RuntimeDefault", "Localhost"];

/// The volumes that the level `restricted` allows.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The prefix of the annotations that name the AppArmor profile of a container.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The service account of a Pod that names none.
const DEFAULT_ACCOUNT: &str = "default";

/// Returns true if objects of this kind of Kubernetes are or make Pods.
///
/// A ControllerRevision is one of them: a StatefulSet or DaemonSet makes Pods of the template in it.
pub fn makes_pods(kind: &GroupKind) -> bool {
    template_path(kind).is_some() || is_revision(kind)
}

fn template_path(kind: &GroupKind) -> Option<&'static [&'static str]> {
    let found = POD_KINDS
        .iter()
        .find(|(group, name, _)| *group == &*kind.group && *name == &*kind.kind);
    found.map(|(_, _, path)| *path)
}

fn is_revision(kind: &GroupKind) -> bool {
    (&*kind.group, &*kind.kind) == ("apps", "ControllerRevision")
}

/// Returns the broken rules of a level in an object that is or makes Pods, each with the path of the field and the allowed
/// values. An object of another kind breaks none.
///
/// At each level, the Pods may use only the service account `default` and the given ones.
pub fn pod_violations(
    level: PodSecurity,
    accounts: &BTreeSet<String>,
    kind: &GroupKind,
    object: &Map<String, Value>,
) -> Vec<String> {
    if is_revision(kind) && level != PodSecurity::Privileged {
        return vec!["a ControllerRevision may hold any Pod template".to_owned()];
    }
    let Some(path) = template_path(kind) else {
        return Vec::new();
    };
    let violations = |root: Node<'_>| {
        let template = path.iter().fold(root, |node, field| node.at(field));
        template_violations(level, accounts, &template)
    };
    // The paths cost more than the rules, and nearly every object breaks none.
    let mut found = violations(Node::root(object, None));
    if !found.is_empty() {
        found = violations(Node::root(object, Some(String::new())));
    }
    found
}

fn template_violations(
    level: PodSecurity,
    accounts: &BTreeSet<String>,
    template: &Node<'_>,
) -> Vec<String> {
    let mut violations = Violations(Vec::new());
    let spec = template.at("spec");
    for field in ["serviceAccountName", "serviceAccount"] {
        let account = spec.at(field);
        let is_named =
            |name: &str| name.is_empty() || name == DEFAULT_ACCOUNT || accounts.contains(name);
        if !account.is_absent() && !account.text().is_some_and(is_named) {
            violations.of(&account, "be a service account that the grants name");
        }
    }
    if level <= PodSecurity::Baseline {
        baseline(template, &mut violations);
    }
    if level <= PodSecurity::Restricted {
        restricted(&spec, &mut violations);
    }
    violations.0
}

/// The rules of the level `baseline`.
fn baseline(template: &Node<'_>, violations: &mut Violations) {
    let spec = template.at("spec");
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        violations.unless_false(&spec.at(field));
    }
    for volume in spec.at("volumes").items() {
        let host_path = volume.at("hostPath");
        if !host_path.is_absent() {
            violations.of(&host_path, "be absent");
        }
    }
    let security = spec.at("securityContext");
    baseline_security(&security, violations);
    for sysctl in security.at("sysctls").items() {
        violations.unless_one_of(&sysctl.at("name"), &SYSCTLS);
    }
    for annotation in template.at("metadata").at("annotations").members() {
        let is_profile =
            |text: &str| ["", "runtime/default"].contains(&text) || text.starts_with("localhost/");
        if annotation.name.starts_with(APPARMOR) && !annotation.text().is_some_and(is_profile) {
            violations.of(&annotation, "be runtime/default or localhost/*");
        }
    }
    for container in containers(&spec) {
        let security = container.at("securityContext");
        baseline_security(&security, violations);
        violations.unless_false(&security.at("privileged"));
        violations.unless_one_of(&security.at("procMount"), &["Default"]);
        for added in security.at("capabilities").at("add").items() {
            violations.unless_one_of(&added, &CAPABILITIES);
        }
        for port in container.at("ports").items() {
            let host_port = port.at("hostPort");
            if !host_port.is_absent() && host_port.value.as_u64() != Some(0) {
                violations.of(&host_port, "be absent");
            }
        }
        let lifecycle = container.at("lifecycle");
        for action in [
            container.at("livenessProbe"),
            container.at("readinessProbe"),
            container.at("startupProbe"),
            lifecycle.at("postStart"),
            lifecycle.at("preStop"),
        ] {
            // A probe of another host would send requests from the network of the node.
            violations.unless_one_of(&action.at("httpGet").at("host"), &[""]);
            violations.unless_one_of(&action.at("tcpSocket").at("host"), &[""]);
        }
    }
}

/// The rules of the level `baseline` for a security context, of a Pod or of a container.
fn baseline_security(security: &Node<'_>, violations: &mut Violations) {
    violations.unless_false(&security.at("windowsOptions").at("hostProcess"));
    violations.unless_one_of(&security.at("appArmorProfile").at("type"), &PROFILES);
    violations.unless_one_of(&security.at("seccompProfile").at("type"), &PROFILES);
    let selinux = security.at("seLinuxOptions");
    violations.unless_one_of(&selinux.at("type"), &SELINUX_TYPES);
    violations.unless_one_of(&selinux.at("user"), &[""]);
    violations.unless_one_of(&selinux.at("role"), &[""]);
}

/// The rules that the level `restricted` adds.
fn restricted(spec: &Node<'_>, violations: &mut Violations) {
    for volume in spec.at("volumes").items() {
        for source in volume.members() {
            if source.name != "name" && !VOLUMES.contains(&source.name) {
                let allowed = format!("be one of {}", VOLUMES.join(", "));
                violations.of(&source, &allowed);
            }
        }
    }
    let of_pod = spec.at("securityContext");
    restricted_user(&of_pod, violations);
    for container in containers(spec) {
        let security = container.at("securityContext");
        restricted_user(&security, violations);
        let escalation = security.at("allowPrivilegeEscalation");
        if *escalation.value != Value::Bool(false) {
            violations.of(&escalation, "be false");
        }
        let non_root = security.at("runAsNonRoot");
        if non_root.or(&of_pod.at("runAsNonRoot")).is_absent() {
            violations.of(&non_root, "be true, here or for the Pod");
        }
        let seccomp = security.at("seccompProfile").at("type");
        let of_pod = of_pod.at("seccompProfile").at("type");
        if seccomp.or(&of_pod).is_absent() {
            violations.of(
                &seccomp,
                "be RuntimeDefault or Localhost, here or for the Pod",
            );
        }
        let capabilities = security.at("capabilities");
        let drop = capabilities.at("drop");
        if !drop.items().iter().any(|it| it.text() == Some("ALL")) {
            violations.of(&drop, "have ALL");
        }
        for added in capabilities.at("add").items() {
            violations.unless_one_of(&added, &["NET_BIND_SERVICE"]);
        }
    }
}

/// The rules of the level `restricted` for the user in a security context, of a Pod or of a container.
fn restricted_user(security: &Node<'_>, violations: &mut Violations) {
    let non_root = security.at("runAsNonRoot");
    if !non_root.is_absent() && *non_root.value != Value::Bool(true) {
        violations.of(&non_root, "be true");
    }
    let user = security.at("runAsUser");
    if !user.is_absent() && user.value.as_i64().is_none_or(|user| user == 0) {
        violations.of(&user, "be another user than 0");
    }
}

/// Returns the containers of all three lists of a Pod.
fn containers<'a>(spec: &Node<'a>) -> Vec<Node<'a>> {
    let lists = ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .map(|list| spec.at(list).items());
    lists.flatten().collect()
}

/// The broken rules so far.
struct Violations(Vec<String>);

impl Violations {
    fn of(&mut self, node: &Node<'_>, allowed: &str) {
        let path = node.path.as_deref().unwrap_or_default();
        let text = format!("{path} must {allowed}");
        // The level `restricted` repeats some rules of `baseline` with fewer values.
        if !self.0.contains(&text) {
            self.0.push(text);
        }
    }

    fn unless_false(&mut self, node: &Node<'_>) {
        if !node.is_absent() && *node.value != Value::Bool(false) {
            self.of(node, "be false");
        }
    }

    fn unless_one_of(&mut self, node: &Node<'_>, allowed: &[&str]) {
        if node.is_absent() || node.text().is_some_and(|text| allowed.contains(&text)) {
            return;
        }
        // The empty text counts as absent.
        let allowed: Vec<&str> = allowed
            .iter()
            .copied()
            .filter(|it| !it.is_empty())
            .collect();
        if allowed.is_empty() {
            self.of(node, "be absent");
        } else {
            self.of(node, &format!("be one of {}", allowed.join(", ")));
        }
    }
}

/// A value in an object, with its path.
#[derive(Clone)]
struct Node<'a> {
    /// None where it only matters if a rule is broken.
    path: Option<String>,
    /// The last field of the path.
    name: &'a str,
    /// Null if the value is absent, as an answer may state it.
    value: &'a Value,
    /// The fields of an object; none for every other value.
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> Node<'a> {
    const fn root(object: &'a Map<String, Value>, path: Option<String>) -> Self {
        Self {
            path,
            name: "",
            value: &Value::Null,
            fields: Some(object),
        }
    }

    fn new(path: Option<String>, name: &'a str, value: &'a Value) -> Self {
        Self {
            path,
            name,
            value,
            fields: value.as_object(),
        }
    }

    fn at(&self, name: &'a str) -> Self {
        let value = self.fields.and_then(|fields| fields.get(name));
        let path = self.path.as_ref().map(|path| {
            let dot = if path.is_empty() { "" } else { "." };
            format!("{path}{dot}{name}")
        });
        Self::new(path, name, value.unwrap_or(&Value::Null))
    }

    /// Returns the fields of an object.
    fn members(&self) -> Vec<Self> {
        let names = self.fields.into_iter().flat_map(Map::keys);
        names.map(|name| self.at(name)).collect()
    }

    /// Returns the items of a list. Another value counts as one item: the API server rejects it later.
    fn items(&self) -> Vec<Self> {
        match self.value {
            Value::Null => Vec::new(),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| {
                        let path = self.path.as_ref().map(|path| format!("{path}[{index}]"));
                        Self::new(path, self.name, item)
                    })
                    .collect()
            }
            _ => vec![self.clone()],
        }
    }

    fn text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    fn or(&self, other: &Self) -> Self {
        let found = if self.is_absent() { other } else { self };
        found.clone()
    }
}
