//! Delegation in one call: enter, build, forward.

use super::pipe::forward_subagent_stream;
use crate::context::{EnterError, RunContext, RunSpec};
use crate::outcome::{FailureKind, SubAgentOutcome};
use crate::stream::SubAgentStream;

impl RunContext {
    /// Runs a child to its end and returns its outcome: what a producer awaits that delegates.
    ///
    /// A child that is refused, or whose producer cannot be built, is a failed outcome too. Who wants to see the refusal itself
    /// uses [`RunContext::enter`] and [`forward_subagent_stream`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the child.
    ///
    /// # Examples
    ///
    /// ```
    /// use anabranch::{Root, RunSpec, SubAgentOutcome, SubAgentStream};
    ///
    /// # tokio_test::block_on(async {
    /// let run = Root::new().run(RunSpec::new("parent", "delegate"), |cx| {
    ///     SubAgentStream::generate(|_emit| async move {
    ///         let child = |_cx| SubAgentStream::settled(SubAgentOutcome::completed(42));
    ///         cx.delegate(RunSpec::new("child", "answer"), child).await
    ///     })
    /// });
    /// assert_eq!(run.settle().await, SubAgentOutcome::completed(42));
    /// # });
    /// ```
    pub async fn delegate(
        &self,
        spec: RunSpec,
        producer: impl FnOnce(RunContext) -> SubAgentStream,
    ) -> SubAgentOutcome {
        let entered = match self.enter(spec) {
            Ok(entered) => entered,
            Err(EnterError::Cancelled(cancelled)) => return SubAgentOutcome::cancelled(cancelled.by),
            Err(EnterError::Refused(refusal)) => {
                let value = refusal.to_value();
                let message = value.get("message").and_then(|text| text.as_str()).unwrap_or_default();
                return SubAgentOutcome::failed(FailureKind::Refused, message);
            }
        };
        let stream = SubAgentStream::build(|| Ok::<_, std::convert::Infallible>(producer(entered.context())));
        forward_subagent_stream(stream, entered).await
    }
}
