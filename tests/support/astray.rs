//! Small components that lead a compiler astray. They are valid, and nobody's mistake.

use std::fmt::Write as _;

/// A component of which the compiler wants more memory than a host lets it have.
pub fn wants_memory() -> Vec<u8> {
    component(9000, 9000)
}

/// A component that keeps a compiler busy for some seconds.
pub fn wants_time() -> Vec<u8> {
    component(2500, 2500)
}

/// So many loops in each other, with so many variables that each of them may change.
/// The compiler keeps track of every variable in every loop.
fn component(loops: usize, variables: usize) -> Vec<u8> {
    let mut body = "loop\n".repeat(loops);
    let mut line = |line: std::fmt::Arguments<'_>| {
        body.write_fmt(line).expect("a text grows");
    };
    for variable in 0..variables {
        line(format_args!(
            "local.get {variable} i32.const 1 i32.add local.set {variable}\n"
        ));
    }
    for variable in 0..loops {
        // Each goes on by what the inner ones did.
        line(format_args!(
            "local.get {} br_if 0 end\n",
            variable % variables
        ));
    }
    let locals = "i32 ".repeat(variables);
    let text = format!(
        r#"(component
          (core module $astray (func (local {locals})
{body}))
          (core instance (instantiate $astray))
          (instance $r) (export "innkeeper:plugin/reconciler@0.1.0" (instance $r)))"#
    );
    wat::parse_str(&text).expect("a component in the text format")
}
