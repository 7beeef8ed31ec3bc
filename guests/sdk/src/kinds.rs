//! The kinds of children as a type, so that the compiler knows them.

use kube::Resource;
use serde::Serialize;

use crate::child::Child;
use crate::manifest::ChildKind;

/// The kinds of a plugin's typed children; [`child_kinds!`](crate::child_kinds!) implements it.
///
/// `()` is for plugins whose children are all [untyped](Child::untyped).
pub trait ChildKinds {
    /// Returns the kinds in the order in which the plugin states them.
    fn kinds() -> Vec<ChildKind>;

    /// Returns a child with one of these kinds and the default policies.
    ///
    /// [`Context::child`](crate::context::Context::child) does the same where there is a context.
    ///
    /// # Panics
    ///
    /// Panics if the object cannot be written as JSON, such as a map whose keys are not strings.
    fn child<T: Resource<DynamicType = ()> + Serialize>(key: impl Into<String>, object: &T) -> Child
    where
        Self: Includes<T>,
    {
        Child::untyped(key, object)
    }
}

/// States that a plugin has children of the kind `T`.
#[diagnostic::on_unimplemented(
    message = "`{T}` is not a child kind of this plugin",
    note = "add it to `child_kinds!`"
)]
pub trait Includes<T> {}

impl ChildKinds for () {
    fn kinds() -> Vec<ChildKind> {
        Vec::new()
    }
}

/// Declares a type for the kinds of a plugin's children.
///
/// The manifest has these kinds, and a child of another kind does not compile.
/// The methods of [`ChildKind`] follow a kind in brackets.
///
/// ```
/// use innkeeper_sdk::child_kinds;
/// use innkeeper_sdk::kinds::ChildKinds;
/// use k8s_openapi::api::{core::v1::{PersistentVolumeClaim, Service}, networking::v1::Ingress};
///
/// child_kinds! {
///     /// The kinds of children.
///     pub Kinds: Service, Ingress [optional], PersistentVolumeClaim [never_deleted]
/// }
///
/// let child = Kinds::child("service", &Service::default());
/// assert_eq!(child.kind(), "Service");
/// assert!(!Kinds::kinds()[1].required);
/// ```
///
/// ```compile_fail
/// # use innkeeper_sdk::child_kinds;
/// # use innkeeper_sdk::kinds::ChildKinds;
/// # use k8s_openapi::api::core::v1::{Secret, Service};
/// child_kinds!(Kinds: Service);
///
/// let child = Kinds::child("password", &Secret::default());
/// ```
#[macro_export]
macro_rules! child_kinds {
    ($(#[$doc:meta])* $vis:vis $name:ident: $($kind:ty $([$($property:ident),+])?),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name;

        impl $crate::kinds::ChildKinds for $name {
            fn kinds() -> Vec<$crate::manifest::ChildKind> {
                vec![$($crate::manifest::ChildKind::for_type::<$kind>()$($(.$property())+)?),+]
            }
        }

        $(impl $crate::kinds::Includes<$kind> for $name {})+
    };
}
