//! The span of a call of a design: a child of the span that caused the call, with the host in its name.

use isobar_outlets::calls::{CallAnswer, CallError, host_of};
use isobar_store::registry::DeliveryKind;
use isobar_traces::Span;

const TRACEPARENT: &str = "traceparent";
/// Longest host name that is recorded: a longer one cannot be resolved.
const HOST_CHARACTERS_MAX: usize = 253;

/// A call that is under way, and its span if traces are on.
pub(super) struct TracedCall(Option<Span>);

impl TracedCall {
    pub fn begin(method: &str, url: &str, caused_by: Option<String>) -> Self {
        let span = Span::of_delivery(method, DeliveryKind::Call.name(), caused_by.as_deref());
        if let Some(span) = &span {
            span.note("http.request.method", method.to_owned());
            // The rest of the address may contain secrets.
            if let Some(host) = host_of(url).filter(|host| host.len() <= HOST_CHARACTERS_MAX) {
                span.note("server.address", host);
            }
        }
        Self(span)
    }

    /// Adds the header that names the span, unless the design has set one itself.
    pub fn headers(&self, mut headers: Vec<(String, String)>) -> Vec<(String, String)> {
        let is_set = || headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT));
        if let Some(span) = &self.0
            && !is_set()
        {
            headers.push((TRACEPARENT.to_owned(), span.traceparent()));
        }
        headers
    }

    /// Does work within the span of the call.
    pub async fn work<F: Future>(&self, work: F) -> F::Output {
        isobar_traces::work(self.0.as_ref(), work).await
    }

    /// Records the outcome of the call in its span.
    pub fn end(&self, made: &Result<CallAnswer, CallError>) {
        let Some(span) = &self.0 else { return };
        match made {
            Ok(answer) => {
                span.note_status(answer.status);
                if answer.status >= 400 {
                    span.note_failure("status");
                }
            }
            Err(CallError::Refused(_)) => span.note_failure("refused"),
            Err(CallError::Failed(_)) => span.note_failure("failed"),
        }
        span.end();
    }
}
