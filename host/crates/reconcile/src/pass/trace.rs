//! The trace of a pass: a span with a child span for each step.
//!
//! Costs nothing without a tracer, or if the pass is not sampled.

use innkeeper_model::{ObjectId, PluginName};
use opentelemetry::{
    Context, KeyValue,
    trace::{Span as _, SpanBuilder, Status, TraceContextExt as _, Tracer as _},
};
use opentelemetry_sdk::trace::{SdkTracer, Span};
use parking_lot::Mutex;

use crate::next::Next;

/// The trace of one pass.
#[derive(Default)]
pub(crate) struct Trace<'a>(Option<Box<Begun<'a>>>);

struct Begun<'a> {
    tracer: &'a SdkTracer,
    /// The pass span.
    pass: Context,
    /// The running step's span, which ends when it is dropped.
    step: Mutex<Option<Span>>,
}

impl<'a> Trace<'a> {
    /// Begins a trace.
    pub(crate) fn begin(
        tracer: Option<&'a SdkTracer>,
        plugin: &PluginName,
        parent: &ObjectId,
    ) -> Self {
        let begin = |tracer: &'a SdkTracer| {
            let text = |key: &'static str, value: &str| KeyValue::new(key, value.to_owned());
            let mut attributes = vec![
                text("innkeeper.plugin", plugin.as_str()),
                text("innkeeper.parent.kind", &parent.kind.to_string()),
                text("innkeeper.parent.name", &parent.name),
            ];
            let namespace = parent.namespace.as_deref();
            attributes.extend(namespace.map(|name| text("innkeeper.parent.namespace", name)));
            let span = SpanBuilder::from_name("pass").with_attributes(attributes);
            let span = tracer.build_with_context(span, &Context::new());
            let is_sampled = span.span_context().is_sampled();
            is_sampled.then(|| {
                Box::new(Begun {
                    tracer,
                    pass: Context::new().with_span(span),
                    step: Mutex::default(),
                })
            })
        };
        Self(tracer.and_then(begin))
    }

    /// Returns the trace id in hexadecimal digits.
    pub(crate) fn id(&self) -> Option<String> {
        let begun = self.0.as_ref()?;
        Some(begun.pass.span().span_context().trace_id().to_string())
    }

    /// Begins a step, and ends the one before it.
    ///
    /// A guard for each step, or a future around it, would make the pass's future much larger.
    pub(crate) fn step(&self, name: &'static str) {
        if let Some(begun) = &self.0 {
            let step = SpanBuilder::from_name(name);
            let mut current = begun.step.lock();
            // End the last step first, or the two would overlap.
            current.take();
            *current = Some(begun.tracer.build_with_context(step, &begun.pass));
        }
    }

    /// Ends the trace.
    pub(crate) fn end(self, next: &Next) {
        if let Some(begun) = self.0 {
            begun.step.lock().take();
            let span = begun.pass.span();
            span.set_attribute(KeyValue::new("innkeeper.outcome", next.word()));
            if matches!(next, Next::Backoff | Next::BackoffAtLeast(_)) {
                span.set_status(Status::error("the pass failed"));
            }
            span.end();
        }
    }
}
