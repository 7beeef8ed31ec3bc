//! The reasons in the conditions of Plugins.

use strum::{AsRefStr, EnumMessage, VariantArray};

/// A reason in a Plugin's conditions. The reference of conditions has the comment of each variant, which names the remedy
/// for the user. A stage that succeeded has the stage's name as the reason, unless there is more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, EnumMessage, VariantArray)]
pub enum PluginReason {
    /// The host is fetching the component, or waits for other fetches.
    ///
    /// Remedy: Wait.
    Fetching,
    /// The spec breaks a rule that the Plugin CRD does not check.
    ///
    /// Remedy: Correct the field in the message.
    InvalidSpec,
    /// The installed Plugin CRD is older than the host, or lacks a field.
    ///
    /// Remedy: Upgrade the CRD with the chart, or apply `deploy/crds/plugins.innkeeper.dev.yaml`.
    CrdOutdated,
    /// The source does not exist, or a ConfigMap, key or Secret that it names.
    ///
    /// Remedy: Push the artifact or create the object. ConfigMaps and Secrets must be in the host's namespace.
    NotFound,
    /// The cache directory no longer has the earlier revision.
    ///
    /// Remedy: Set the revision's source, so that the host fetches it again.
    NotKept,
    /// The host ended at least twice in a row while loading the component, so the next attempt waits up to an hour.
    ///
    /// Remedy: Find out why the host's container ended. If the component is the cause, delete the Plugin or set another
    /// component; a changed spec is tried at once.
    HostEnded,
    /// The host cannot read the file, ConfigMap or Secret.
    ///
    /// Remedy: Let the host read it. The host retries.
    ReadFailed,
    /// The path, address, reference or credentials are invalid.
    ///
    /// Remedy: Correct `spec.source` or the Secret that it names.
    SourceInvalid,
    /// The host's certificates or proxies are invalid.
    ///
    /// Remedy: Correct the host's `--source-ca-file` or proxy variables.
    SettingsInvalid,
    /// The Secret with the credentials does not list the server.
    ///
    /// Remedy: Add the server's host to the Secret's annotation `innkeeper.dev/hosts`.
    SecretNotForHost,
    /// The server, or a redirect target, has an address that is not allowed for sources.
    ///
    /// Remedy: Use a server with a public address, or run the host with `--allow-local-sources`.
    AddressRefused,
    /// The bytes are not a plugin, manifest or signature.
    ///
    /// Remedy: Push the artifact again with `innkeeper push`.
    ArtifactMalformed,
    /// The artifact exceeds a size limit.
    ///
    /// Remedy: Build a smaller component.
    TooLarge,
    /// The connection to the server failed or broke.
    ///
    /// Remedy: Check the server and the host's network policies. The host retries.
    Unreachable,
    /// The server's certificate is not signed by a trusted CA.
    ///
    /// Remedy: Add the CA with `--source-ca-file`.
    Untrusted,
    /// The server did not send the artifact in time.
    ///
    /// Remedy: Check the server. The host retries.
    TooSlow,
    /// The server denied access.
    ///
    /// Remedy: Correct the credentials in the source's Secret.
    Denied,
    /// The server asked the host to slow down.
    ///
    /// Remedy: Wait.
    Throttled,
    /// The server failed or does not follow the protocol.
    ///
    /// Remedy: Check the server. The host retries.
    ServerFailed,
    /// Digest and signature are as declared. The message says how they were verified.
    ///
    /// Remedy: None needed.
    AsExpected,
    /// The bytes do not have the digest in `spec.digest`.
    ///
    /// Remedy: Correct the digest, or find out who replaced the bytes.
    WrongDigest,
    /// The artifact has no signature, and `spec.verify` requires one.
    ///
    /// Remedy: Sign it with `innkeeper sign` or cosign.
    Unsigned,
    /// The signature is by another key, for other content, or names another repository.
    ///
    /// Remedy: Sign the artifact with a key in `spec.verify.keys`.
    BadSignature,
    /// The component's name is not `spec.verify.name`.
    ///
    /// Remedy: Correct the source or the name.
    OtherPlugin,
    /// The component's version is lower than `spec.verify.minVersion`, or not a semantic version.
    ///
    /// Remedy: Use a newer version, or lower `minVersion`.
    OldVersion,
    /// The host is compiling the component.
    ///
    /// Remedy: Wait.
    Compiling,
    /// The component is invalid, imports more than the contract, or needs another contract version.
    ///
    /// Remedy: Rebuild it with a supported SDK; the message names the import.
    CannotCompile,
    /// The component exceeds a compiler limit.
    ///
    /// Remedy: Build a smaller component, or raise the Pod's memory limit; the compiler gets half.
    CompileLimitExceeded,
    /// Something killed the compiling process, usually for lack of memory.
    ///
    /// Remedy: Raise the Pod's memory limit. The host retries.
    CompilerKilled,
    /// The host could not start a process or write to the cache directory.
    ///
    /// Remedy: Check the host's log and disk. The host retries.
    HostFault,
    /// The component failed to describe itself, or the description differs from the embedded one.
    ///
    /// Remedy: Rebuild the component with `innkeeper build`.
    CannotDescribe,
    /// `spec.config` does not match the plugin's schema.
    ///
    /// Remedy: Correct the field in the message; `innkeeper inspect` shows the schema.
    ConfigInvalid,
    /// Checking `spec.config` exceeds the limit in the message.
    ///
    /// Remedy: Make the configuration smaller, or simplify the patterns in the plugin's schema.
    ConfigLimitExceeded,
    /// Required grants are missing.
    ///
    /// Remedy: Review and add the grants in the message; `innkeeper manifests` prints them.
    NotGranted,
    /// The plugin serves, but optional grants are missing. The message lists them.
    ///
    /// Remedy: None needed, or add them.
    Reduced,
    /// The host has not decided yet.
    ///
    /// Remedy: Wait.
    Starting,
    /// `spec.suspend` stops all passes.
    ///
    /// Remedy: Set it to false to resume.
    Suspended,
    /// No revision is active, because an earlier stage failed.
    ///
    /// Remedy: See the condition in the message.
    NotLoaded,
    /// A plugin file or an older Plugin serves this parent kind.
    ///
    /// Remedy: Delete one of the two; the other starts by itself.
    ParentTaken,
    /// The cluster does not serve the parent kind.
    ///
    /// Remedy: Install the CustomResourceDefinition, or grant it with `spec.crds: Install`.
    ParentNotServed,
    /// A plugin file has the Plugin's name.
    ///
    /// Remedy: Rename the Plugin, or run the host without the file.
    NameTaken,
    /// The plugin needs more than the host's `--namespaces`.
    ///
    /// Remedy: Run it on a host without `--namespaces`.
    BeyondNamespaces,
    /// The plugin's CustomResourceDefinition must not replace the installed one.
    ///
    /// Remedy: Follow the message: migrate the stored versions, or install the CustomResourceDefinition yourself with
    /// `spec.crds: Ignore`.
    CrdRefused,
    /// The host failed to install the parents' CustomResourceDefinition.
    ///
    /// Remedy: See the message. The host retries.
    CrdFailed,
    /// The host failed to add the Plugin's finalizer or to write the inventory.
    ///
    /// Remedy: Give the host the permissions in the message. The host retries.
    NotHeld,
    /// The Plugin is being deleted and waits until all parents have lost the plugin's finalizer.
    ///
    /// Remedy: Check the parents in the message.
    Leaving,
    /// The account in `spec.grants.serviceAccountRef` does not exist.
    ///
    /// Remedy: Create it; `innkeeper manifests --account` prints it.
    AccountMissing,
    /// The account does not list the Plugin.
    ///
    /// Remedy: Add the Plugin to the account's annotation `innkeeper.dev/plugins`.
    AccountNotForPlugin,
    /// The host cannot read the account.
    ///
    /// Remedy: Let the host get it. The host retries.
    AccountNotRead,
    /// The candidate's dry run waits for kinds that are not in the cache yet.
    ///
    /// Remedy: Wait; the message names the kind.
    DryRunWaits,
    /// The candidate would delete more children than `spec.rollout.maxPrunes` allows.
    ///
    /// Remedy: Review the counts in `status.candidate`, then copy its revision to `spec.rollout.approve`.
    TooManyPrunes,
    /// The candidate fails for more than a fifth of the parents that succeeded with the active revision. In the
    /// condition `RolledBack`: the declared revision fails too often; False if there is no good earlier one, or
    /// `spec.rollout.autoRollback` is false.
    ///
    /// Remedy: Set a corrected revision, or correct the parents in `status.candidate.faults`. The dry run repeats every
    /// minute.
    TooManyFaults,
    /// The candidate waits for approval because `spec.rollout.mode` is Gated.
    ///
    /// Remedy: Review the counts in `status.candidate`, then copy its revision to `spec.rollout.approve`.
    AwaitingApproval,
    /// The declared revision failed too often, and an earlier one is active again.
    ///
    /// Remedy: Set a corrected revision.
    RolledBack,
    /// `Degraded=False`: the declared revision is active.
    ///
    /// Remedy: None needed.
    AsDeclared,
    /// The cache has no room for all children in a namespace. The condition disappears once there is room.
    ///
    /// Remedy: Delete unneeded objects with the plugin's label, or raise the `spec.limits` field in the message.
    NamespaceCacheFull,
    /// `RolledBack=False`: the declared revision was not rolled back.
    ///
    /// Remedy: None needed.
    NotNeeded,
    /// An earlier stage failed or has not finished.
    ///
    /// Remedy: See the condition in the message.
    NotReached,
}

impl PluginReason {
    /// Returns each reason with the comment above, for the reference page.
    pub fn documented() -> impl Iterator<Item = (&'static str, &'static str)> {
        Self::VARIANTS.iter().map(|reason| {
            let documentation = reason.get_documentation();
            (reason.as_ref(), documentation.unwrap_or_default())
        })
    }
}
