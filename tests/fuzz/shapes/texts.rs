//! Shaped texts that are not part of a description: YAML, objects, registry answers.

use super::Shape;

/// Returns a YAML text.
pub(in super::super) fn yaml(shape: &Shape) -> String {
    let depth = usize::try_from(shape.depth).unwrap();
    // Few, because each alias counts: above the parser's limits it takes a second to reach them.
    let cost = usize::try_from(shape.cost.min(64)).unwrap();
    match shape.forms[0] % 9 {
        // Each level has several aliases to the previous one.
        0 => {
            let levels = Shape::parts(shape.depth.min(64), |number| {
                let inner = match number {
                    0 => "x".to_owned(),
                    _ => vec![format!("*a{}", number - 1); cost].join(","),
                };
                format!("a{number}: &a{number} [{inner}]")
            });
            levels.join("\n")
        }
        1 => format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
        2 => format!("{}1", "- ".repeat(depth)),
        3 => format!("{}1{}", "{a: ".repeat(depth), "}".repeat(depth)),
        4 => Shape::parts(shape.depth.min(900), |number| {
            format!("{}a:", " ".repeat(usize::try_from(number).unwrap()))
        })
        .join("\n"),
        5 => {
            let merges = Shape::parts(shape.size, |number| {
                format!("m{number}: {{<<: *a, b{number}: 1}}")
            });
            let fields: Vec<String> = (0..cost).map(|field| format!("f{field}: 1")).collect();
            format!("a: &a {{{}}}\n{}", fields.join(", "), merges.join("\n"))
        }
        6 => Shape::parts(shape.size, |number| format!("k{number}: &k{number} 1")).join("\n"),
        7 => Shape::parts(shape.size, |number| format!("--- {number}")).join("\n"),
        _ => format!(
            "a: {}\nb: 1e{}\nc: !!binary {}",
            "9".repeat(depth),
            "9".repeat(cost),
            "A".repeat(depth)
        ),
    }
}

/// Returns a watch line with a deep or wide object.
pub(in super::super) fn object(shape: &Shape) -> String {
    let depth = usize::try_from(shape.depth).unwrap();
    let deep = match shape.forms[0] % 3 {
        0 => format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
        1 => format!("{}1{}", "{\"f:a\":".repeat(depth), "}".repeat(depth)),
        _ => {
            let fields = Shape::parts(shape.size, |number| {
                format!("\"innkeeper.dev/k{number}\":\"v\"")
            });
            format!("{{{}}}", fields.join(","))
        }
    };
    let place = shape.form(
        1,
        &[
            "spec",
            "status",
            "data",
            "labels",
            "annotations",
            "fields",
            "owners",
        ],
    );
    let part = |name: &str, default: &str| {
        if name == place {
            deep.clone()
        } else {
            default.to_owned()
        }
    };
    let object = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{{\"name\":\"a\",\"namespace\":\"demo\",\"uid\":\"u\",\"resourceVersion\":\"12\",\
         \"labels\":{},\"annotations\":{},\"ownerReferences\":{},\
         \"managedFields\":[{{\"manager\":\"innkeeper:cache\",\"operation\":\"Apply\",\"fieldsV1\":{}}}]}},\"spec\":{},\"data\":{},\"status\":{}}}",
        part("labels", "{\"innkeeper.dev/plugin\":\"cache\"}"),
        part("annotations", "{}"),
        part("owners", "[{\"uid\":\"uid-web\",\"controller\":true}]"),
        part("fields", "{}"),
        part("spec", "{}"),
        part("data", "{}"),
        part("status", "{}"),
    );
    let list = format!(
        "{{\"kind\":\"ServiceList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"11\"}},\"items\":[{object}]}}"
    );
    let line = format!("{{\"type\":\"ADDED\",\"object\":{object}}}");
    if shape.mask & 1 == 1 {
        format!("{list}\n{line}\n")
    } else {
        format!("{{\"metadata\":{{\"resourceVersion\":\"11\"}},\"items\":[]}}\n{line}\n")
    }
}

/// Returns a registry answer, or a line that names an artifact or a challenge.
pub(in super::super) fn answer(shape: &Shape) -> String {
    let depth = usize::try_from(shape.depth).unwrap();
    let digest = format!("sha256:{}", "0".repeat(64));
    match shape.forms[0] % 7 {
        0 => Shape::parts(shape.size, |number| format!("Basic realm=\"{number}\"")).join(", "),
        1 => format!(
            "Bearer realm=\"https://a/{}\",scope=\"{}\"",
            "\\\"".repeat(depth),
            "a,".repeat(depth)
        ),
        2 => format!("localhost/{}a:b", "a/".repeat(depth)),
        3 => format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            "MFkw\n".repeat(depth)
        )
        .repeat(4),
        4 => {
            let layers = Shape::parts(shape.size, |number| {
                format!(
                    "{{\"mediaType\":\"application/x{number}\",\"digest\":\"{digest}\",\"size\":1e3}}"
                )
            });
            format!("{{\"schemaVersion\":2,\"layers\":[{}]}}", layers.join(","))
        }
        5 => {
            let signatures = Shape::parts(shape.size, |_| "{\"sig\":\"MEUCIQ==\"}".to_owned());
            format!(
                "{{\"dsseEnvelope\":{{\"payload\":\"AAAA\",\"payloadType\":\"application/vnd.in-toto+json\",\"signatures\":[{}]}}}}",
                signatures.join(",")
            )
        }
        _ => {
            let logins = Shape::parts(shape.size, |number| {
                format!("\"a{number}.*.*.*\":{{\"auth\":\"YTpi\"}}")
            });
            format!("{{\"auths\":{{{}}}}}", logins.join(","))
        }
    }
}
