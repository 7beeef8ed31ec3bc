//! The reasons in the conditions of a Plugin, for the reference: each with its meaning and its remedy.

/// A reason in a condition.
pub struct ReasonEntry {
    /// The type of the condition.
    pub condition: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// The state that the reason names.
    pub meaning: &'static str,
    /// The step of the user that ends it.
    pub remedy: &'static str,
}

/// All reasons, in the order of the stages. A stage that succeeded without a remark has its own name as its reason.
pub const REASONS: &[ReasonEntry] = &[
    entry(
        "Fetched",
        "Fetching",
        "The component is being fetched, or waits until other fetches end.",
        "Wait.",
    ),
    entry(
        "Fetched",
        "InvalidSpec",
        "The spec breaks a rule that the definition of Plugins does not check.",
        "Correct the field in the message.",
    ),
    entry(
        "Fetched",
        "CrdOutdated",
        "The installed definition of Plugins is older than the host, or is missing a field.",
        "Upgrade the definition with the chart, or apply `deploy/crds/plugins.innkeeper.dev.yaml`.",
    ),
    entry(
        "Fetched",
        "NotFound",
        "The source, or the ConfigMap, key or Secret that it names, does not exist.",
        "Push the artifact or create the object; ConfigMaps and Secrets belong into the host's namespace.",
    ),
    entry(
        "Fetched",
        "NotKept",
        "The cache directory does not have the earlier revision any more.",
        "Declare the revision with its source, so that it is fetched again.",
    ),
    entry(
        "Fetched",
        "ReadFailed",
        "The file, ConfigMap or Secret could not be read.",
        "Give the host the right to read it; the fetch is retried.",
    ),
    entry(
        "Fetched",
        "SourceInvalid",
        "The path, address, reference or credentials cannot be used.",
        "Correct `spec.source` or the Secret that it names.",
    ),
    entry(
        "Fetched",
        "SettingsInvalid",
        "The certificates or the proxies of the host cannot be used.",
        "Correct `--source-ca-file` or the proxy variables of the host.",
    ),
    entry(
        "Fetched",
        "SecretNotForHost",
        "The Secret with the credentials does not name the server.",
        "Add the server's host to the annotation `innkeeper.dev/hosts` of the Secret.",
    ),
    entry(
        "Fetched",
        "AddressRefused",
        "The server, or the target of a redirect, has an address that plugins may not come from.",
        "Use a server with a public address, or run the host with `--allow-local-sources`.",
    ),
    entry(
        "Fetched",
        "ArtifactMalformed",
        "The bytes are no plugin, manifest or signature.",
        "Push the artifact again with `innkeeper push`.",
    ),
    entry(
        "Fetched",
        "TooLarge",
        "The artifact exceeds a size limit.",
        "Build a smaller component.",
    ),
    entry(
        "Fetched",
        "Unreachable",
        "No connection to the server was made, or it broke.",
        "Look at the server and the network policies of the host; the fetch is retried.",
    ),
    entry(
        "Fetched",
        "Untrusted",
        "No trusted authority signed the certificate of the server.",
        "Give the host the authority with `--source-ca-file`.",
    ),
    entry(
        "Fetched",
        "TooSlow",
        "The server did not send the artifact in time.",
        "Look at the server; the fetch is retried.",
    ),
    entry(
        "Fetched",
        "Denied",
        "The server denied access.",
        "Correct the credentials in the Secret that the source names.",
    ),
    entry(
        "Fetched",
        "Throttled",
        "The server asked for a pause.",
        "Wait.",
    ),
    entry(
        "Fetched",
        "ServerFailed",
        "The server failed, or does not follow the protocol.",
        "Look at the server; the fetch is retried.",
    ),
    entry(
        "Verified",
        "AsExpected",
        "The bytes have the declared digest and signature; the message states how they were verified.",
        "None is needed.",
    ),
    entry(
        "Verified",
        "WrongDigest",
        "The bytes have another digest than `spec.digest`.",
        "Correct the digest, or find out who replaced the bytes.",
    ),
    entry(
        "Verified",
        "Unsigned",
        "The artifact has no signature, and `spec.verify` requires one.",
        "Sign it with `innkeeper sign` or cosign.",
    ),
    entry(
        "Verified",
        "BadSignature",
        "The signature is by another key, of other content, or names another repository.",
        "Sign the artifact with a key of `spec.verify.keys`.",
    ),
    entry(
        "Verified",
        "OtherPlugin",
        "The component gives itself another name than `spec.verify.name`.",
        "Correct the source or the name.",
    ),
    entry(
        "Verified",
        "OldVersion",
        "The component gives itself a lower version than `spec.verify.minVersion`, or none that can be compared.",
        "Use a newer version, or lower `minVersion`.",
    ),
    entry(
        "Compiled",
        "Compiling",
        "The component is being compiled.",
        "Wait.",
    ),
    entry(
        "Compiled",
        "CannotCompile",
        "The component is not valid, imports more than the contract, or needs another version of the contract.",
        "Rebuild it with a supported SDK; the message names the import.",
    ),
    entry(
        "Compiled",
        "CompileLimitExceeded",
        "The component exceeds a limit of the compiler.",
        "Build a smaller component, or raise the memory limit of the Pod, of which a compiler gets half.",
    ),
    entry(
        "Compiled",
        "CompilerKilled",
        "The compiling process was killed from outside, mostly for memory.",
        "Raise the memory limit of the Pod; compiling is retried.",
    ),
    entry(
        "any",
        "HostFault",
        "The host could not do its part: start a process, or write to its cache directory.",
        "Look at the log of the host and at its disk; the step is retried.",
    ),
    entry(
        "Described",
        "CannotDescribe",
        "The component failed to describe itself, or its description differs from the embedded one.",
        "Rebuild the component with `innkeeper build`.",
    ),
    entry(
        "Described",
        "ConfigInvalid",
        "`spec.config` does not match the schema of the plugin.",
        "Correct the field in the message; `innkeeper inspect` shows the schema.",
    ),
    entry(
        "Granted",
        "NotGranted",
        "The plugin requires grants that the Plugin does not have.",
        "Review and add the grants in the message; `innkeeper manifests` prints them.",
    ),
    entry(
        "Granted",
        "Reduced",
        "The plugin serves, but optional grants are missing; the message lists them.",
        "None is needed, or add them.",
    ),
    entry(
        "Serving",
        "Serving",
        "The passes of the active revision run.",
        "None is needed.",
    ),
    entry(
        "Serving",
        "Starting",
        "The host has not decided yet.",
        "Wait.",
    ),
    entry(
        "Serving",
        "Suspended",
        "`spec.suspend` stops all passes.",
        "Set it to false to resume.",
    ),
    entry(
        "Serving",
        "NotLoaded",
        "No revision is active, because an earlier stage failed.",
        "See the condition in the message.",
    ),
    entry(
        "Serving",
        "ParentTaken",
        "A plugin file or an older Plugin reconciles the same kind of parents.",
        "Delete one of the two; the other starts by itself.",
    ),
    entry(
        "Serving",
        "ParentNotServed",
        "The cluster does not serve the kind of the parents.",
        "Install its definition, or grant it with `spec.crds: Install`.",
    ),
    entry(
        "Serving",
        "NameTaken",
        "A plugin file of the host has the name of the Plugin.",
        "Rename the Plugin, or run the host without the file.",
    ),
    entry(
        "Serving",
        "BeyondNamespaces",
        "The plugin needs more of the cluster than the `--namespaces` of the host.",
        "Run it on a host without `--namespaces`.",
    ),
    entry(
        "Serving",
        "CrdRefused",
        "The plugin's definition must not replace the installed one.",
        "Follow the message: migrate the stored versions, or install the definition yourself with `spec.crds: Ignore`.",
    ),
    entry(
        "Serving",
        "CrdFailed",
        "The definition of the parents could not be installed.",
        "Look at the message; the step is retried.",
    ),
    entry(
        "Serving",
        "NotHeld",
        "The finalizer could not be added to the Plugin, or the inventory could not be written.",
        "Give the host the rights in the message; the step is retried.",
    ),
    entry(
        "Serving",
        "Leaving",
        "The Plugin is being deleted and waits until its finalizer is removed from all parents.",
        "Look at the parents in the message.",
    ),
    entry(
        "Serving",
        "AccountMissing",
        "The account of `spec.grants.serviceAccountRef` does not exist.",
        "Create it; `innkeeper manifests --account` prints it.",
    ),
    entry(
        "Serving",
        "AccountNotForPlugin",
        "The account does not name the Plugin.",
        "Add the Plugin to its annotation `innkeeper.dev/plugins`.",
    ),
    entry(
        "Serving",
        "AccountNotRead",
        "The account could not be read.",
        "Give the host the right to get it; the step is retried.",
    ),
    entry(
        "Serving",
        "DryRunWaits",
        "The dry run of the candidate waits until its kinds are in the cache.",
        "Wait; the message names the kind.",
    ),
    entry(
        "Serving",
        "TooManyPrunes",
        "The candidate would delete more children than `spec.rollout.maxPrunes` allows.",
        "Review its counts in `status.candidate`, and set `spec.rollout.approve` to its revision.",
    ),
    entry(
        "Serving",
        "AwaitingApproval",
        "The candidate waits for approval, because `spec.rollout.mode` is Gated.",
        "Review its counts in `status.candidate`, and set `spec.rollout.approve` to its revision.",
    ),
    entry(
        "Serving",
        "RolledBack",
        "The declared revision faulted too often, and an earlier one is active again.",
        "Declare a corrected revision.",
    ),
    entry(
        "Ready",
        "Ready",
        "The declared revision is active and its passes run. Otherwise Ready has the reason of the stage that failed.",
        "None is needed.",
    ),
    entry(
        "Degraded",
        "AsDeclared",
        "The declared revision is active. Otherwise Degraded is True, with the reason of the stage that failed.",
        "None is needed.",
    ),
    entry(
        "RolledBack",
        "NotNeeded",
        "The declared revision was not rolled back.",
        "None is needed.",
    ),
    entry(
        "RolledBack",
        "TooManyFaults",
        "True: an earlier revision is active again. False: the revision faults too often, and there is no good one before it, or `spec.rollout.autoRollback` is false.",
        "Declare a corrected revision.",
    ),
    entry(
        "any",
        "NotReached",
        "An earlier stage failed or has not ended.",
        "See the condition in the message.",
    ),
];

const fn entry(
    condition: &'static str,
    reason: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> ReasonEntry {
    ReasonEntry {
        condition,
        reason,
        meaning,
        remedy,
    }
}
