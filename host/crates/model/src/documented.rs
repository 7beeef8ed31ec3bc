//! Text constants whose documentation is data.

/// Defines text constants and a list with each one's value and doc comment, which the reference pages show.
macro_rules! documented {
    ($list:ident: $($(#[doc = $doc:literal])+ $name:ident = $value:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $value;)+

        /// The value and the doc comment of each constant.
        pub const $list: &[(&str, &str)] = &[$(($value, concat!($($doc),+))),+];
    };
}
