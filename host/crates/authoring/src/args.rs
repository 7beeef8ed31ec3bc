//! Command flags, which are the commands' settings.

mod build;
mod cache;
mod inspect;
mod manifests;
mod new;
mod recordings;
mod registry;
mod render;
mod test;

pub use build::BuildArgs;
pub use cache::CacheArgs;
pub use inspect::{InspectArgs, Inspected};
pub use manifests::{ManifestsArgs, PluginAccount};
pub use new::{NewArgs, Sdk};
pub use recordings::ReplayArgs;
pub use registry::{FetchArgs, LoadArgs, PullArgs, PushArgs, RegistryArgs, SignArgs, VerifyArgs};
pub use render::{OutputFormat, RenderArgs, RenderPhase};
pub use test::{TestArgs, TestFormat};
