//! Inputs made by editing others.
//!
//! Edits refer to places by numbers that fit any input, so that proptest can drop some of them.

use proptest::{collection, prelude::*};
use serde_json::{Map, Value, json};

use super::corpus::Seed;

/// The largest generated input, in bytes: enough to see quadratic time or memory.
pub(super) const BYTES_MAX: usize = 512 << 10;

/// JSON tree edits, then byte edits.
const TREE_EDITS: u8 = 10;
const BYTE_EDITS: u8 = 8;

/// Texts that parsers, names and paths may misinterpret.
const HOSTILE: [&str; 30] = [
    "",
    " ",
    "\0",
    "\n",
    "\"",
    "\\",
    "..",
    "../../kube-system",
    "/",
    "*",
    "%2e%2e%2f",
    "kube-system",
    "innkeeper",
    "innkeeper.dev/plugin",
    "innkeeper.dev/retained-for",
    "innkeeper:web",
    "system:masters",
    "v1",
    "a/b/c",
    "Pod",
    "ClusterRoleBinding",
    "sha256:0000000000000000000000000000000000000000000000000000000000000000",
    "9223372036854775808",
    "-1",
    "1e400",
    "\u{202e}",
    "\u{feff}",
    "é漢🦀",
    "${}",
    "{\"a\":null}",
];

/// Bytes with a meaning in LEB128, UTF-8 and JSON.
const BYTES: [u8; 12] = [
    0, 1, 0x7f, 0x80, 0xff, 0xc0, 0xf4, b'"', b'\\', b'{', b'[', b'\n',
];

/// One edit: kind, place, argument and count.
type Edit = (u8, u32, u32, u8);

/// The number of the input to edit, and the edits.
pub(super) type Chosen = (u32, Vec<Edit>);

/// The inputs to edit, and all their parts.
pub(super) struct Edits {
    seeds: Vec<Seed>,
    nodes: Vec<Value>,
    names: Vec<String>,
}

/// The strategy that picks an input and edits.
pub(super) fn strategy() -> impl Strategy<Value = Chosen> {
    (any::<u32>(), collection::vec(any::<Edit>(), 1..8))
}

impl Edits {
    /// Collects the parts of inputs.
    pub(super) fn new(seeds: Vec<Seed>) -> Self {
        let hostile = HOSTILE.iter().map(|text| json!(text));
        let scalars = [json!(null), json!(true), json!([]), json!({}), json!("")];
        let numbers = [
            json!(0),
            json!(-1),
            json!(1e300),
            json!(u64::MAX),
            json!(i64::MIN),
        ];
        let mut nodes: Vec<Value> = hostile.chain(scalars).chain(numbers).collect();
        let mut names: Vec<String> = HOSTILE.iter().map(|name| (*name).to_owned()).collect();
        for document in seeds
            .iter()
            .filter_map(|seed| seed.documents.as_ref())
            .flatten()
        {
            collect(document, &mut nodes, &mut names);
        }
        Self {
            seeds,
            nodes,
            names,
        }
    }

    /// Returns the edited input.
    pub(super) fn input(&self, (seed, edits): &Chosen) -> Vec<u8> {
        let seed = pick(&self.seeds, *seed);
        let mut bytes = match &seed.documents {
            None => seed.bytes.clone(),
            Some(documents) => self.edited_tree(documents, edits),
        };
        for edit in edits {
            // Damaged JSON is refused early, so only some edits may damage it.
            if seed.documents.is_none() || edit.0 >= 250 {
                self.edit_bytes(&mut bytes, *edit);
            }
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    fn edited_tree(&self, documents: &[Value], edits: &[Edit]) -> Vec<u8> {
        let mut documents = Value::Array(documents.to_vec());
        for edit in edits.iter().filter(|edit| edit.0 < 250) {
            // The list of documents is not a node in any of them.
            let at = index(count(&documents) - 1, edit.1) + 1;
            if let Some(node) = nth(&mut documents, &mut { at }) {
                self.edit_node(node, *edit);
            }
        }
        let lines: Vec<String> = documents
            .as_array()
            .unwrap()
            .iter()
            .map(|document| format!("{document}\n"))
            .collect();
        lines.concat().into_bytes()
    }

    fn edit_node(&self, node: &mut Value, (kind, _, with, count): Edit) {
        let other = || pick(&self.nodes, with).clone();
        match (kind % TREE_EDITS, node) {
            (0 | 1, node) => *node = other(),
            (2, Value::Array(items)) if !items.is_empty() => {
                items.remove(index(items.len(), with));
            }
            (2 | 3, Value::Object(fields)) if !fields.is_empty() => {
                let name = fields
                    .keys()
                    .nth(index(fields.len(), with))
                    .unwrap()
                    .clone();
                let value = fields.remove(&name).unwrap();
                if kind % TREE_EDITS == 3 {
                    let name = pick(&self.names, with.rotate_left(u32::from(count)));
                    fields.insert(name.clone(), value);
                }
            }
            (4, Value::Object(fields)) => {
                let name = pick(&self.names, with.rotate_left(u32::from(count)));
                fields.insert(name.clone(), other());
            }
            (4, Value::Array(items)) => items.push(other()),
            (5, node) => repeat(node, with, count),
            (6, node) => {
                for _ in 0..1_u32 << (count % 8) {
                    let inner = node.take();
                    *node = if with % 2 == 0 {
                        Value::Array(vec![inner])
                    } else {
                        Value::Object(Map::from_iter([(pick(&self.names, with).clone(), inner)]))
                    };
                }
            }
            (7, Value::String(text)) => {
                let mut at = index(text.len() + 1, with);
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                text.insert_str(at, hostile(with));
            }
            (8, Value::String(text)) => {
                let length = index(text.chars().count() + 1, with);
                *text = text.chars().take(length).collect();
            }
            // JSON within a text, as guests return objects.
            (9, node) => *node = Value::String(node.to_string()),
            (_, Value::Number(number)) => {
                let shifted = number.as_i64().unwrap_or(1).wrapping_shl(u32::from(count));
                *number = shifted.into();
            }
            (_, node) => *node = other(),
        }
    }

    fn edit_bytes(&self, bytes: &mut Vec<u8>, (kind, at, with, count): Edit) {
        let start = index(bytes.len() + 1, at);
        let end = start.saturating_add(index(64, with)).min(bytes.len());
        match kind % BYTE_EDITS {
            0 => {
                if let Some(byte) = bytes.get_mut(start) {
                    *byte ^= 1 << (count % 8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(start) {
                    *byte = *pick(&BYTES, with);
                }
            }
            2 => drop(bytes.drain(start..end)),
            3 => {
                let part = bytes[start..end].repeat(1 << (count % 14));
                splice(bytes, start, start, &part);
            }
            4 => splice(bytes, start, start, hostile(with).as_bytes()),
            5 => {
                let other = &pick(&self.seeds, with).bytes;
                let from = index(other.len() + 1, with.rotate_left(16));
                let part = &other[from..other.len().min(from + usize::from(count) * 4)];
                splice(bytes, start, end, part);
            }
            6 => bytes.truncate(start),
            // A large number in LEB128.
            _ => splice(
                bytes,
                start,
                (start + 1).min(end),
                &[0xff, 0xff, 0xff, 0xff, 0x0f],
            ),
        }
    }
}

/// Makes a list, an object or a text longer, up to the largest input size.
fn repeat(node: &mut Value, with: u32, count: u8) {
    let size = node.to_string().len().max(1);
    let times = (1_usize << (count % 14)).min(BYTES_MAX / size);
    match node {
        Value::Array(items) if !items.is_empty() => {
            let item = items[index(items.len(), with)].clone();
            items.extend(std::iter::repeat_n(item, times));
        }
        Value::Object(fields) => {
            let value = fields
                .values()
                .nth(index(fields.len().max(1), with))
                .cloned()
                .unwrap_or_default();
            fields.extend((0..times).map(|number| (format!("k{number}"), value.clone())));
        }
        Value::String(text) => *text = text.repeat(times),
        node => *node = Value::Array(vec![node.clone(); times]),
    }
}

fn splice(bytes: &mut Vec<u8>, start: usize, end: usize, part: &[u8]) {
    drop(bytes.splice(start..end, part.iter().copied()));
}

/// Collects a value's parts and member names.
fn collect(value: &Value, nodes: &mut Vec<Value>, names: &mut Vec<String>) {
    nodes.push(value.clone());
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, nodes, names)),
        Value::Object(fields) => {
            for (name, field) in fields {
                names.push(name.clone());
                collect(field, nodes, names);
            }
        }
        _ => {}
    }
}

/// Counts a value's parts, including itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Returns a part by number.
fn nth<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, at)),
        Value::Object(fields) => fields.values_mut().find_map(|field| nth(field, at)),
        _ => None,
    }
}

fn hostile(number: u32) -> &'static str {
    HOSTILE[index(HOSTILE.len(), number)]
}

/// Returns the index below `length` that a number selects.
fn index(length: usize, number: u32) -> usize {
    usize::try_from(number).unwrap() % length.max(1)
}

fn pick<T>(items: &[T], number: u32) -> &T {
    &items[index(items.len(), number)]
}
