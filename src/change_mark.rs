//! Whether anything in a store changed, at the price of one small request.

use std::fmt;

use async_trait::async_trait;

/// A store that can say whether anything in it changed without listing it.
///
/// [`L2Adapter`](crate::l2::L2Adapter) asks it before it lists a shared pool again. Stores without
/// such a mark are listed every time.
#[async_trait]
pub trait ChangeMark: fmt::Debug + Send + Sync {
    /// A text that differs from every earlier one as soon as any object was written or deleted since.
    /// It may also differ without that. `None` if the store cannot tell.
    async fn change_mark(&self) -> object_store::Result<Option<String>>;
}
