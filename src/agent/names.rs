//! Tools that come with a run and not from its parent's tools, by names that more than one room has to know.

/// The tool by which an agent acts that writes code.
pub const EXECUTE_CODE: &str = "execute_code";

/// The tool by which an agent reports that was delegated to by its name.
#[cfg(any(feature = "catalogue", feature = "codeact"))]
pub(crate) const FINISH: &str = "finish";
