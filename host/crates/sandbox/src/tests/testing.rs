//! Small hand-written guests for tests, as core WebAssembly in text form.
//!
//! A guest's answers are laid out in memory beforehand, so that it only has to return their addresses.

use std::fmt::Write;

use innkeeper_model::{Fault, Limits, Outcome, Phase};
use serde_json::Value;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::{
    CallFault, Described, Engine, EngineSettings, Metering,
    artifact::{self, ConfigChecker, Program},
};

/// The first laid-out value's address; the memory below is for import results.
const IMAGE: usize = 4096;

/// A WIT value.
#[derive(Clone, Debug)]
pub enum V {
    U8(u8),
    U32(u32),
    U64(u64),
    Str(String),
    List(Vec<Self>),
    /// A list whose items lie elsewhere: address and count.
    Far(u32, u32),
    Rec(Vec<Self>),
    /// The case, the payload, and the largest payload's size and alignment.
    Variant(u8, Option<Box<Self>>, (usize, usize)),
}

const STR: (usize, usize) = (8, 4);
const REPORT: (usize, usize) = (48, 8);
const PREDICTION: (usize, usize) = (56, 8);
const DESIRED: (usize, usize) = (120, 8);
/// The outcome, which is larger than a fault.
const RESULT: (usize, usize) = (128, 8);

impl V {
    fn layout(&self) -> (usize, usize) {
        match self {
            Self::U8(_) => (1, 1),
            Self::U32(_) => (4, 4),
            Self::U64(_) => (8, 8),
            Self::Str(_) | Self::List(_) | Self::Far(..) => STR,
            Self::Rec(fields) => {
                let (size, align) = fields.iter().fold((0, 1), |(size, align), field| {
                    let (field_size, field_align) = field.layout();
                    (
                        usize::next_multiple_of(size, field_align) + field_size,
                        align.max(field_align),
                    )
                });
                (size.next_multiple_of(align), align)
            }
            Self::Variant(_, _, (size, align)) => {
                let align = *align;
                ((align + size).next_multiple_of(align), align)
            }
        }
    }
}

pub fn text(text: &str) -> V {
    V::Str(text.to_owned())
}

pub fn some(value: V) -> V {
    let layout = value.layout();
    V::Variant(1, Some(Box::new(value)), layout)
}

pub fn no_text() -> V {
    V::Variant(0, None, STR)
}

pub fn condition(kind: &str, reason: &str) -> V {
    V::Rec(vec![
        text(kind),
        V::U8(0),
        text(reason),
        text("all is well"),
    ])
}

pub fn report_of(status: Option<&str>, conditions: Vec<V>, requeue: Option<u64>) -> V {
    report_with(status, conditions, Vec::new(), requeue)
}

/// A report with Normal events for these reasons.
pub fn report_events(reasons: &[String]) -> V {
    let event = |reason: &String| V::Rec(vec![V::U8(0), text(reason), text("all is well")]);
    let events = reasons.iter().map(event).collect();
    report_with(None, Vec::new(), events, None)
}

fn report_with(
    status: Option<&str>,
    conditions: Vec<V>,
    events: Vec<V>,
    requeue: Option<u64>,
) -> V {
    V::Rec(vec![
        status.map_or_else(no_text, |status| some(text(status))),
        V::List(conditions),
        V::List(events),
        requeue.map_or(V::Variant(0, None, (8, 8)), |ms| some(V::U64(ms))),
    ])
}

pub fn report() -> V {
    report_of(
        Some(r#"{"ready":1}"#),
        vec![condition("Good", "Fine")],
        Some(5000),
    )
}

pub fn child_of(key: &str, object: &str, generate: Vec<V>) -> V {
    child_with(key, object, generate, 1)
}

/// A child that is deleted with the parent.
pub fn owned_child(key: &str, object: &str) -> V {
    child_with(key, object, Vec::new(), 0)
}

/// A child that waits for others, given as a text list.
pub fn child_after(key: &str, object: &str, after: V) -> V {
    V::Rec(vec![
        text(key),
        text(object),
        V::List(Vec::new()),
        V::U8(0),
        V::U8(0),
        V::U8(0),
        after,
    ])
}

fn child_with(key: &str, object: &str, generate: Vec<V>, removal: u8) -> V {
    V::Rec(vec![
        text(key),
        text(object),
        V::List(generate),
        V::U8(0),
        V::U8(removal),
        V::U8(0),
        V::List(Vec::new()),
    ])
}

pub fn child(key: &str, object: &str) -> V {
    child_of(key, object, Vec::new())
}

pub fn generated(key: &str, length: u32, alphabet: &str) -> V {
    V::Rec(vec![text(key), V::U32(length), text(alphabet), no_text()])
}

fn outcome(case: u8, payload: V) -> V {
    let outcome = V::Variant(case, Some(Box::new(payload)), DESIRED);
    V::Variant(0, Some(Box::new(outcome)), RESULT)
}

pub fn desired(children: Vec<V>) -> V {
    let no_prediction = V::Variant(0, None, PREDICTION);
    outcome(0, V::Rec(vec![V::List(children), report(), no_prediction]))
}

/// An answer with a predicted report, which depends on one part of one child: key, JSON pointer and value.
pub fn predicting(
    children: Vec<V>,
    next: V,
    (key, pointer, value): (&str, &str, Option<&str>),
) -> V {
    let value = value.map_or_else(no_text, |value| some(text(value)));
    let part = V::Rec(vec![text(pointer), value]);
    let child = V::Rec(vec![text(key), V::List(vec![part])]);
    let prediction = some(V::Rec(vec![next, V::List(vec![child])]));
    outcome(0, V::Rec(vec![V::List(children), report(), prediction]))
}

pub fn keep(report: V) -> V {
    outcome(1, report)
}

pub fn finalized() -> V {
    outcome(2, report())
}

pub fn fault(kind: u8, message: &str) -> V {
    let no_report = V::Variant(0, None, REPORT);
    let fault = V::Rec(vec![V::U8(kind), text(message), no_report]);
    V::Variant(1, Some(Box::new(fault)), RESULT)
}

/// The description fields that tests vary.
#[derive(Clone, Debug)]
pub struct Description {
    pub name: String,
    pub version: String,
    pub parents: Vec<[String; 4]>,
    pub crds: Vec<String>,
    pub children: Vec<[String; 2]>,
    /// `apiVersion`, kind and label selector, which may be empty; in full, from the parent's namespace.
    pub reads: Vec<[String; 3]>,
    pub finalizes: bool,
    pub reads_own_status: bool,
    pub config_schema: Option<String>,
}

impl Default for Description {
    fn default() -> Self {
        let parent = ["example.com", "v1", "Web", "webs"].map(str::to_owned);
        Self {
            name: "web".to_owned(),
            version: "1.2.3".to_owned(),
            parents: vec![parent],
            crds: Vec::new(),
            children: vec![["v1", "ConfigMap"].map(str::to_owned)],
            reads: Vec::new(),
            finalizes: false,
            reads_own_status: false,
            config_schema: None,
        }
    }
}

impl Description {
    fn value(&self) -> V {
        let parent = |[group, version, kind, plural]: &[String; 4]| {
            let texts = [group, version, kind, plural].map(|part| text(part));
            V::Rec(texts.into_iter().chain([V::U8(0)]).collect())
        };
        let child = |[api_version, kind]: &[String; 2]| {
            V::Rec(vec![
                text(api_version),
                text(kind),
                V::U8(1),
                no_text(),
                V::U8(0),
            ])
        };
        let read = |[api_version, kind, selector]: &[String; 3]| {
            let access = V::U8(0);
            let scope = V::U8(0);
            let selector = match &**selector {
                "" => no_text(),
                selector => some(text(selector)),
            };
            V::Rec(vec![text(api_version), text(kind), access, scope, selector])
        };
        V::Rec(vec![
            text(&self.name),
            text(&self.version),
            V::List(self.parents.iter().map(parent).collect()),
            V::List(self.crds.iter().map(|crd| text(crd)).collect()),
            V::List(self.children.iter().map(child).collect()),
            V::List(self.reads.iter().map(read).collect()),
            V::U8(self.finalizes.into()),
            V::U8(self.reads_own_status.into()),
            self.config_schema
                .as_deref()
                .map_or_else(no_text, |schema| some(text(schema))),
        ])
    }
}

/// A guest to be built.
#[derive(Clone, Debug)]
pub struct Guest {
    description: Description,
    on_describe: String,
    on_reconcile: String,
    answer: V,
    texts: Vec<String>,
    start: String,
    pages: u32,
    foreign: Foreign,
    fields: String,
}

/// Imports beside the contract's.
#[derive(Clone, Debug, Default)]
pub struct Foreign {
    /// WIT packages.
    pub packages: String,
    /// The world's imports.
    pub world: String,
    /// The core module's imports.
    pub module: String,
}

/// A guest that keeps everything as it is.
pub fn guest() -> Guest {
    Guest {
        description: Description::default(),
        on_describe: String::new(),
        on_reconcile: String::new(),
        answer: keep(report()),
        texts: Vec::new(),
        start: String::new(),
        pages: 2,
        foreign: Foreign::default(),
        fields: String::new(),
    }
}

impl Guest {
    pub fn describing(mut self, description: Description) -> Self {
        self.description = description;
        self
    }

    pub fn answering(mut self, answer: V) -> Self {
        self.answer = answer;
        self
    }

    /// Instructions before the answer. `{0}`, `{1}` stand for address and length of the texts.
    pub fn doing(mut self, instructions: &str, texts: &[&str]) -> Self {
        instructions.clone_into(&mut self.on_reconcile);
        self.texts = texts.iter().map(|&text| text.to_owned()).collect();
        self
    }

    pub fn doing_on_describe(mut self, instructions: &str) -> Self {
        instructions.clone_into(&mut self.on_describe);
        self
    }

    pub fn doing_at_start(mut self, instructions: &str) -> Self {
        self.start = format!("(func $start {instructions}) (start $start)");
        self
    }

    /// More fields in the core module.
    pub fn with_fields(mut self, fields: &str) -> Self {
        self.fields.push_str(fields);
        self
    }

    pub fn with_pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self
    }

    pub fn importing(mut self, foreign: Foreign) -> Self {
        self.foreign = foreign;
        self
    }

    pub fn build(self) -> Vec<u8> {
        let Foreign {
            packages, world, ..
        } = &self.foreign;
        let first = "  import host;";
        let contract = contract().replace(first, &format!("{first} {world}"));
        component(&format!("{contract}\n{packages}"), &self.module())
    }

    fn module(&self) -> String {
        let mut image = Image::default();
        let manifest = image.place(&self.description.value());
        let answer = image.place(&self.answer);
        let mut on_reconcile = self.on_reconcile.clone();
        for (index, text) in self.texts.iter().enumerate() {
            let address = image.place_bytes(text.as_bytes());
            let pair = format!("(i32.const {address}) (i32.const {})", text.len());
            on_reconcile = on_reconcile.replace(&format!("{{{index}}}"), &pair);
        }
        let (heap, data) = image.finish();
        let pages = self.pages.max(u32::try_from(heap / 65_536 + 1).unwrap());
        format!(
            r#"(module
  (import "innkeeper:plugin/host@0.1.0" "log" (func $log (param i32 i32 i32)))
  (import "innkeeper:plugin/host@0.1.0" "now" (func $now (result i64)))
  (import "innkeeper:plugin/host@0.1.0" "zone-offset"
    (func $zone-offset (param i32 i32 i64 i32)))
  (import "innkeeper:plugin/host@0.1.0" "random" (func $random (param i32 i32)))
  (import "innkeeper:plugin/cluster@0.1.0" "get"
    (func $get (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
  (import "innkeeper:plugin/cluster@0.1.0" "list"
    (func $list (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
  {foreign}
  (memory (export "memory") {pages})
  (data (i32.const {IMAGE}) "{data}")
  (global $heap (mut i32) (i32.const {heap}))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (block $fits
      (br_if $fits
        (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
      (br_if $fits (i32.ne (i32.const -1) (memory.grow
        (i32.add (i32.shr_u (local.get 3) (i32.const 16)) (i32.const 1)))))
      (unreachable))
    (local.get $at))
  {start}
  {fields}
  (func (export "innkeeper:plugin/reconciler@0.1.0#describe") (result i32)
    {on_describe}
    (i32.const {manifest}))
  (func $pass (export "innkeeper:plugin/reconciler@0.1.0#reconcile")
    (param $parent i32) (param $parent-len i32) (param $children i32) (param $children-len i32)
    (param $config i32) (param $config-len i32) (param $phase i32)
    (param $namespace-terminating i32) (param $predict i32) (result i32)
    (local $i i32)
    {on_reconcile}
    (i32.const {answer})))"#,
            foreign = self.foreign.module,
            fields = self.fields,
            start = self.start,
            on_describe = self.on_describe,
        )
    }
}

#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
}

impl Image {
    fn allocate(&mut self, size: usize, align: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(align.max(1));
        self.bytes.resize(at + size, 0);
        IMAGE + at
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at - IMAGE..][..bytes.len()].copy_from_slice(bytes);
    }

    fn place(&mut self, value: &V) -> usize {
        let (size, align) = value.layout();
        let at = self.allocate(size, align);
        self.store(at, value);
        at
    }

    fn place_bytes(&mut self, bytes: &[u8]) -> usize {
        let at = self.allocate(bytes.len(), 1);
        self.set(at, bytes);
        at
    }

    fn store_pair(&mut self, at: usize, address: usize, len: usize) {
        self.set(at, &u32::try_from(address).unwrap().to_le_bytes());
        self.set(at + 4, &u32::try_from(len).unwrap().to_le_bytes());
    }

    fn store(&mut self, at: usize, value: &V) {
        match value {
            V::U8(value) => self.set(at, &[*value]),
            V::U32(value) => self.set(at, &value.to_le_bytes()),
            V::U64(value) => self.set(at, &value.to_le_bytes()),
            V::Str(text) => {
                let address = self.place_bytes(text.as_bytes());
                self.store_pair(at, address, text.len());
            }
            V::List(items) => {
                let (size, align) = items.first().map_or((0, 8), V::layout);
                let address = self.allocate(size * items.len(), align);
                for (index, item) in items.iter().enumerate() {
                    self.store(address + index * size, item);
                }
                self.store_pair(at, address, items.len());
            }
            V::Far(address, count) => {
                self.set(at, &address.to_le_bytes());
                self.set(at + 4, &count.to_le_bytes());
            }
            V::Rec(fields) => {
                let mut field_at = at;
                for field in fields {
                    let (size, align) = field.layout();
                    field_at = field_at.next_multiple_of(align);
                    self.store(field_at, field);
                    field_at += size;
                }
            }
            V::Variant(case, payload, (_, align)) => {
                self.set(at, &[*case]);
                if let Some(payload) = payload {
                    self.store(at + align, payload);
                }
            }
        }
    }

    fn finish(self) -> (usize, String) {
        let mut data = String::new();
        for byte in &self.bytes {
            write!(data, "\\{byte:02x}").unwrap();
        }
        (IMAGE + self.bytes.len(), data)
    }
}

/// The contract as it stands in `wit/`.
pub fn contract() -> String {
    include_str!("../../../../../wit/plugin.wit").to_owned()
}

/// Makes a component from a core module and a WIT package's world `plugin`.
pub fn component(wit: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("test.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("plugin")).unwrap();
    let mut module = wat::parse_str(module).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .unwrap()
        .encode()
        .unwrap()
}

pub fn engine(metering: Metering) -> Engine {
    let settings = EngineSettings {
        metering,
        memory_bytes_max: 64 * 1024 * 1024,
        ..EngineSettings::new(4.try_into().unwrap())
    };
    Engine::new(&settings).unwrap()
}

/// Returns a checker that finds each configuration valid, as a schema without rules does.
pub fn checker() -> ConfigChecker {
    ConfigChecker::new(script("cat >/dev/null; echo []"))
}

/// Returns a shell script in place of the confined process.
pub fn script(text: &str) -> Program {
    Program {
        path: "/bin/sh".into(),
        arguments: vec!["-c".into(), text.into()],
    }
}

pub fn described(engine: &Engine, bytes: &[u8]) -> Described {
    let artifact = artifact::compile(engine, bytes, &artifact::Limits::default(), None).unwrap();
    Described::load(engine, &artifact, &Limits::default()).unwrap()
}

/// Converts an answer from JSON, as the sandbox converts a guest's; none if it is no answer.
pub fn converted(
    answer: &Value,
    phase: Phase,
    limits: &Limits,
) -> Option<Result<Result<Outcome, Fault>, CallFault>> {
    let converted = crate::convert::stated(answer, phase, limits)?;
    Some(converted.map_err(Into::into))
}
