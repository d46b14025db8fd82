//! The names a pickle may refer to.

use attend_kernels::DType;

use crate::torch::parse_dtype;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::torch) enum Global {
    OrderedDict,
    /// `torch.Size`: its argument, a tuple.
    Size,
    /// storage, offset, shape, strides.
    RebuildTensor,
    /// ... requires_grad, hooks (, metadata).
    RebuildTensorV2,
    /// ... requires_grad, hooks, dtype (, metadata): over untyped storages.
    RebuildTensorV3,
    /// tensor, requires_grad, hooks.
    RebuildParameter,
    Storage(DType),
    UntypedStorage,
    DType(DType),
}

impl Global {
    pub fn parse(module: &str, name: &str) -> Option<Global> {
        Some(match (module, name) {
            ("collections", "OrderedDict") => Global::OrderedDict,
            ("torch", "Size") => Global::Size,
            ("torch._utils", "_rebuild_tensor") => Global::RebuildTensor,
            ("torch._utils", "_rebuild_tensor_v2") => Global::RebuildTensorV2,
            ("torch._utils", "_rebuild_tensor_v3") => Global::RebuildTensorV3,
            ("torch._utils", "_rebuild_parameter") => Global::RebuildParameter,
            ("torch.storage" | "torch", "UntypedStorage") => Global::UntypedStorage,
            ("torch", name) if name.ends_with("Storage") => Global::Storage(parse_dtype(name)?),
            ("torch", name) => Global::DType(parse_dtype(name)?),
            _ => return None,
        })
    }
}
