//! Inputs with a given depth, size and cost: schemas, patterns, definitions, selectors, CEL rules, YAML and headers.
//!
//! Texts are joined without recursion, because the deepest would overflow the stack.

use proptest::prelude::*;
use serde_json::{Value, json};
use wasm_encoder::{ComponentSectionId, Encode as _};

mod texts;

pub(super) use texts::{answer, object, yaml};

use super::edits::BYTES_MAX;

/// Schema levels within one text: each is one or two JSON levels, and parsers allow 128.
const NESTED_MAX: u32 = 50;

/// An input's parameters. Every number is valid: it selects a form by the remainder.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Levels, or the length of a reference chain.
    pub(super) depth: u32,
    /// Parts beside each other.
    pub(super) size: u32,
    /// The number in a repetition, or a text's length.
    pub(super) cost: u32,
    /// The form of each level, of the whole and of the texts.
    pub(super) forms: [u8; 4],
    /// The restrictions beside each level.
    pub(super) mask: u16,
}

/// Builds an input from a shape.
pub(super) type Shaped = fn(&Shape) -> Vec<u8>;

/// The strategy for shapes. Numbers are distributed by magnitude: 8 to 16 is as likely as 8192 to 16384.
pub(super) fn shapes() -> impl Strategy<Value = Shape> {
    let number = |bits: u32| {
        (0..bits, any::<u32>()).prop_map(|(bits, rest)| (1_u32 << bits) + rest % (1 << bits))
    };
    (
        number(14),
        number(14),
        number(11),
        any::<[u8; 4]>(),
        any::<u16>(),
    )
        .prop_map(|(depth, size, cost, forms, mask)| Shape {
            depth,
            size,
            cost,
            forms,
            mask,
        })
}

impl Shape {
    fn form<'a, T: ?Sized>(&self, number: usize, all: &[&'a T]) -> &'a T {
        all[usize::from(self.forms[number]) % all.len()]
    }

    /// Returns as many parts as fit into an input, at most `count`.
    fn parts(count: u32, part: impl Fn(u32) -> String) -> Vec<String> {
        let mut bytes = 0;
        let mut parts = Vec::new();
        for number in 0..count {
            let part = part(number);
            bytes += part.len() + 1;
            if bytes > BYTES_MAX - 16_384 {
                break;
            }
            parts.push(part);
        }
        parts
    }
}

/// The schema levels; `@` is the next level.
const LEVELS: [&str; 16] = [
    "\"allOf\":[@]",
    "\"anyOf\":[@,@]",
    "\"oneOf\":[@]",
    "\"not\":@",
    "\"properties\":{\"a\":@}",
    "\"items\":@",
    "\"additionalProperties\":@",
    "\"patternProperties\":{\"a\":@}",
    "\"if\":@,\"then\":@",
    "\"dependentSchemas\":{\"a\":@}",
    "\"propertyNames\":@",
    "\"contains\":@",
    "\"prefixItems\":[@]",
    "\"unevaluatedProperties\":@",
    "\"else\":@",
    "\"unevaluatedItems\":@",
];

/// The restrictions beside a level, by mask bit; `#` is a pattern.
const BESIDE: [&str; 8] = [
    ",\"unevaluatedProperties\":false",
    ",\"additionalProperties\":false",
    ",\"type\":\"object\"",
    ",\"pattern\":\"#\"",
    ",\"required\":[\"a\"]",
    ",\"unevaluatedItems\":false",
    ",\"uniqueItems\":true",
    ",\"maxLength\":1e300",
];

/// Returns a JSON schema: a reference chain, nested levels, or parts beside each other.
pub(super) fn schema(shape: &Shape) -> String {
    let level = shape.form(0, &LEVELS);
    let beside = |number: u32| {
        let text: String = BESIDE
            .iter()
            .enumerate()
            .filter(|(bit, _)| shape.mask >> bit & 1 == 1)
            .map(|(_, text)| *text)
            .collect();
        text.replace('#', &escaped(&pattern(shape, number)))
    };
    let wide = |parts: &[String]| match shape.forms[2] % 3 {
        0 => format!("{{\"allOf\":[{}]}}", parts.join(",")),
        1 => format!("{{\"anyOf\":[{}]}}", parts.join(",")),
        _ => {
            let fields: Vec<String> = parts
                .iter()
                .enumerate()
                .map(|(number, part)| format!("\"k{number}\":{part}"))
                .collect();
            format!("{{\"properties\":{{{}}}}}", fields.join(","))
        }
    };
    match shape.forms[1] % 4 {
        // A chain of definitions: each level refers to the next one.
        0 | 1 => {
            let is_direct = shape.forms[1].is_multiple_of(4);
            let definitions = Shape::parts(shape.depth, |number| {
                let next = format!("\"$ref\":\"#/$defs/a{}\"", number + 1);
                let inner = if is_direct {
                    next
                } else {
                    level.replace('@', &format!("{{{next}}}"))
                };
                format!("\"a{number}\":{{{inner}{}}}", beside(number))
            });
            let last = definitions.len();
            let definitions = definitions.join(",");
            format!(
                "{{\"$ref\":\"#/$defs/a0\",\"$defs\":{{{definitions},\"a{last}\":{{\"type\":\"object\"}}}}}}"
            )
        }
        2 => nested(shape, level, &beside),
        _ => {
            let parts = Shape::parts(shape.size, |number| {
                let pattern = escaped(&pattern(shape, number));
                format!("{{\"properties\":{{\"k\":{{\"pattern\":\"{pattern}\"}}}}}}")
            });
            wide(&parts)
        }
    }
}

/// Returns nested levels; a level with two places doubles the text.
fn nested(shape: &Shape, level: &str, beside: &impl Fn(u32) -> String) -> String {
    let mut text = "{}".to_owned();
    for number in 0..shape.depth.min(NESTED_MAX) {
        let outer = format!("{{{}{}}}", level.replace('@', &text), beside(number));
        if outer.len() > BYTES_MAX / 2 {
            break;
        }
        text = outer;
    }
    text
}

/// Returns a pattern, a different one for each number.
pub(super) fn pattern(shape: &Shape, number: u32) -> String {
    let atom = shape.form(
        3,
        &[
            "\\w",
            "[\\p{L}\\p{N}]",
            ".",
            "a",
            "(a|b)",
            "\\d",
            "(?i)k",
            "(a+)+",
            "(?=a)",
            "(a)\\1",
        ],
    );
    let cost = shape.cost;
    let repeated = match shape.forms[2] % 5 {
        0 => format!("{atom}{{{cost}}}"),
        1 => format!("{atom}{{0,{cost}}}"),
        2 => format!("({atom}*)*"),
        3 => format!("(({atom}{{1,{cost}}}){{1,{cost}}}){{1,{cost}}}"),
        _ => {
            let levels = usize::try_from(cost).unwrap();
            format!("{}{atom}{}", "(".repeat(levels), ")".repeat(levels))
        }
    };
    format!("^{repeated}z{number}$")
}

/// Returns a CEL rule.
pub(super) fn rule(shape: &Shape) -> String {
    let depth = usize::try_from(shape.depth).unwrap();
    let around =
        |left: &str, right: &str| format!("{}true{}", left.repeat(depth), right.repeat(depth));
    let joined = |part: &str, with: &str| vec![part; depth].join(with);
    match shape.forms[0] % 14 {
        0 => around("(", ")"),
        1 => around("!", ""),
        2 => format!("{}1 > 0", "-".repeat(depth)),
        3 => format!("size({}) > 0", around("[", "]")),
        4 => format!("{} > 0", joined("1", "+")),
        5 => joined("true", " && "),
        6 => format!("{}true", "true ? true : ".repeat(depth)),
        7 => format!("has(self{})", ".a".repeat(depth)),
        8 => {
            let mut text = "true".to_owned();
            // CEL evaluation is unbounded, and each level takes eight times as long.
            for _ in 0..depth.min(5) {
                text = format!("[1, 2, 3, 4, 5, 6, 7, 8].all(x, {text})");
            }
            text
        }
        9 => format!(
            "'{}'.matches('{}')",
            "a".repeat(depth),
            pattern(shape, 0).replace('\\', "\\\\")
        ),
        10 => format!("self{} == 1", "[0]".repeat(depth)),
        11 => format!("size({}'a') > 0", "'a' + ".repeat(depth)),
        12 => format!("{} > 0", "9".repeat(depth)),
        _ => format!(
            "{}'a'{} == dyn(1)",
            "{'a': ".repeat(depth),
            "}".repeat(depth)
        ),
    }
}

/// Returns a CustomResourceDefinition with a structural schema.
pub(super) fn definition(shape: &Shape) -> String {
    let level = shape.form(
        0,
        &[
            "\"properties\":{\"a\":@}",
            "\"items\":@,\"type\":\"array\"",
            "\"additionalProperties\":@",
            "\"allOf\":[@]",
            "\"anyOf\":[@,@]",
            "\"not\":@",
        ],
    );
    let rule = Value::String(rule(shape));
    let schema = match shape.forms[1] % 5 {
        0 => nested(shape, level, &|_| ",\"type\":\"object\"".to_owned()),
        1 => format!("{{\"type\":\"object\",\"x-kubernetes-validations\":[{{\"rule\":{rule}}}]}}"),
        2 => {
            let values = Shape::parts(shape.size, |number| format!("\"v{number}\""));
            format!(
                "{{\"properties\":{{\"a\":{{\"enum\":[{}]}}}}}}",
                values.join(",")
            )
        }
        3 => {
            let rules = Shape::parts(shape.size, |number| {
                format!("{{\"rule\":\"self.a > {number}\"}}")
            });
            format!(
                "{{\"properties\":{{\"a\":{{\"type\":\"integer\"}}}},\"x-kubernetes-validations\":[{}]}}",
                rules.join(",")
            )
        }
        _ => {
            let fields = Shape::parts(shape.size, |number| {
                let pattern = escaped(&pattern(shape, number));
                format!("\"f{number}\":{{\"type\":\"string\",\"pattern\":\"{pattern}\"}}")
            });
            let names = Shape::parts(shape.size, |number| format!("\"f{number}\""));
            let names = if shape.mask & 1 == 1 {
                names.join(",")
            } else {
                String::new()
            };
            format!(
                "{{\"properties\":{{{}}},\"required\":[{names}]}}",
                fields.join(",")
            )
        }
    };
    format!(
        "{{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"CustomResourceDefinition\",\"metadata\":{{\"name\":\"ponds.example.com\"}},\
         \"spec\":{{\"group\":\"example.com\",\"scope\":\"Namespaced\",\"names\":{{\"kind\":\"Pond\",\"plural\":\"ponds\"}},\
         \"versions\":[{{\"name\":\"v1\",\"served\":true,\"storage\":true,\"schema\":{{\"openAPIV3Schema\":{{\"type\":\"object\",\"properties\":{{\"spec\":{schema}}}}}}}}}]}}}}"
    )
}

/// Returns a plugin description with one large part.
pub(super) fn description(shape: &Shape) -> String {
    let mut description = json!({
        "name": "pond", "version": "1", "finalize": false, "readsOwnStatus": false,
        "parents": [{"apiVersion": "example.com/v1", "kind": "Pond", "plural": "ponds", "scope": "Namespaced"}],
        "crds": [], "children": [], "reads": [],
    });
    let (part, text) = match shape.mask >> 8 & 7 {
        0 => ("crds", format!("[{}]", definition(shape))),
        1 => {
            let selector = Value::String(selector(shape));
            let read = format!(
                "[{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"access\":\"full\",\"scope\":\"cluster\",\"labelSelector\":{selector}}}]"
            );
            ("reads", read)
        }
        _ => ("configSchema", schema(shape)),
    };
    description[part] = "@".into();
    description.to_string().replacen("\"@\"", &text, 1)
}

/// Returns a label selector.
pub(super) fn selector(shape: &Shape) -> String {
    let cost = usize::try_from(shape.cost).unwrap();
    let requirements = Shape::parts(shape.size, |number| match shape.forms[0] % 6 {
        0 => format!("k{number}"),
        1 => format!("!k{number}"),
        2 => format!("k{number}=v{number}"),
        3 => {
            let values: Vec<String> = (0..cost).map(|value| format!("v{value}")).collect();
            format!("k{number} in ({})", values.join(","))
        }
        4 => format!("k notin ({number},{})", "(".repeat(cost)),
        _ => format!("{}=={number}", "k".repeat(cost)),
    });
    requirements.join(",")
}

/// Returns sections to append to a component: nested types, or many of one kind.
pub(super) fn sections(shape: &Shape) -> Vec<u8> {
    let depth = usize::try_from(shape.depth).unwrap();
    // A component type, or an instance type, that declares one type.
    let opening = shape.form(0, &[&[0x41, 1, 1], &[0x42, 1, 1]]);
    let content = match shape.forms[1] % 3 {
        0 => [&[1], opening.repeat(depth).as_slice(), &[0x42, 0]].concat(),
        // Lists of the previous type, and records with as many fields.
        1 => {
            let lists = Shape::parts(shape.size, |number| number.to_string())
                .len()
                .min(100);
            let lists = (0..lists).flat_map(|number| [0x70, u8::try_from(number).unwrap()]);
            [
                &[u8::try_from(lists.clone().count() / 2 + 1).unwrap(), 0x73],
                lists.collect::<Vec<_>>().as_slice(),
            ]
            .concat()
        }
        _ => vec![0x41; depth],
    };
    let mut section = vec![u8::from(ComponentSectionId::Type)];
    content.encode(&mut section);
    let times = usize::try_from(shape.size)
        .unwrap()
        .min(BYTES_MAX / section.len());
    section.repeat(if shape.mask & 1 == 1 { times.max(1) } else { 1 })
}

/// Escapes a text for use within JSON quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The shapes reach what no edit of a small input does.
#[test]
fn shapes_are_as_deep_and_large_as_their_numbers() {
    let shape = Shape {
        depth: 1500,
        size: 2000,
        cost: 60,
        forms: [0, 0, 0, 1],
        mask: 1,
    };
    let chain = schema(&shape);
    assert!(chain.contains(r##""a1499":{"$ref":"#/$defs/a1500","unevaluatedProperties":false}"##));
    let wide = schema(&Shape {
        forms: [0, 3, 0, 1],
        ..shape
    });
    assert!(wide.contains(r#"{"pattern":"^[\\p{L}\\p{N}]{60}z1999$"}"#));
    for text in [chain, wide, description(&shape), definition(&shape)] {
        assert!(text.len() <= BYTES_MAX, "{}", text.len());
        let value: Result<Value, _> = serde_json::from_str(&text);
        assert!(value.is_ok(), "{value:?} in {text}");
    }
    assert_eq!(selector(&shape).split(',').count(), 2000);
}
