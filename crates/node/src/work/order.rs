//! Reading an order: the content of an Action object, which the control plane wrote.

use model::work::{MAX_ARGS, Order, Work};

/// The largest content of an Action object, in bytes.
pub const MAX_ORDER: usize = 64 * 1024;

/// An order that cannot be carried out as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Larger than [`MAX_ORDER`].
    #[error("the order is larger than {MAX_ORDER} bytes")]
    TooLarge,
    /// It is no order that this version knows.
    #[error("the order cannot be read: {0}")]
    Read(String),
    /// More arguments than [`MAX_ARGS`].
    #[error("the command has more than {MAX_ARGS} arguments")]
    TooManyArguments,
    /// There is no program.
    #[error("the command is empty")]
    NoProgram,
    /// A NUL byte, which no argument can hold.
    #[error("an argument holds a NUL byte")]
    Nul,
}

/// Reads the content of an Action object.
///
/// # Errors
/// [`OrderError`]: such an action is answered as failed and never begun.
pub fn order_of(content: &[u8]) -> Result<Order, OrderError> {
    if content.len() > MAX_ORDER {
        return Err(OrderError::TooLarge);
    }
    let order: Order =
        serde_json::from_slice(content).map_err(|error| OrderError::Read(error.to_string()))?;
    match &order.work {
        Work::Command { argv } => {
            if argv.first().is_none_or(String::is_empty) {
                return Err(OrderError::NoProgram);
            }
            if argv.len() > MAX_ARGS {
                return Err(OrderError::TooManyArguments);
            }
            if argv.iter().any(|arg| arg.contains('\0')) {
                return Err(OrderError::Nul);
            }
        }
        Work::Action { args, .. } => {
            if args.len() > MAX_ARGS {
                return Err(OrderError::TooManyArguments);
            }
            if args.values().any(|arg| arg.contains('\0')) {
                return Err(OrderError::Nul);
            }
        }
        Work::Query { .. } | Work::Operation { .. } => {}
    }
    Ok(order)
}
