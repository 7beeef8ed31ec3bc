//! Small components that are valid and cost the compiler far more memory or time than their size suggests.

use std::fmt::Write as _;

/// A component that needs more memory to compile than a host allows.
pub fn wants_memory() -> Vec<u8> {
    component(9000, 9000)
}

/// A component that takes several seconds of CPU time to compile.
pub fn wants_time() -> Vec<u8> {
    component(2500, 2500)
}

/// A component with nested loops, each of which may change every variable.
///
/// The compiler tracks every variable in every loop, so the cost grows with the product of the two numbers.
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
        // Each loop repeats as long as a variable that the inner loops changed is not 0.
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
