//! What a weights file may do with its values: name storages, describe tensors over them, and list them by name.

use super::{Machine, Value};
use crate::Error;
use crate::error::shown;
use crate::torch::pickle::global::Global;
use crate::torch::pickle::{StateDict, Storage, TensorView};

const MAX_TENSORS: usize = 1 << 17;

impl Machine<'_, '_> {
    /// `('storage', type, key, location, elements)`, in older files with a view that is `None`.
    pub(super) fn persistent(&mut self) -> Result<(), Error> {
        let id = self.pop()?;
        let (kind, key) = match self.items_of(id) {
            Some([tag, kind, key, _, Value::Int(_)] | [tag, kind, key, _, Value::Int(_), Value::None])
                if self.text(*tag) == Some("storage") =>
            {
                (*kind, *key)
            }
            _ => return Err(self.damaged("a storage is described in an unknown way")),
        };
        let dtype = match kind {
            Value::Global(Global::Storage(dtype)) => Some(dtype),
            Value::Global(Global::UntypedStorage) => None,
            _ => return Err(self.damaged("a storage has an unknown type")),
        };
        let key = self.text(key).filter(|key| !key.is_empty()).map(str::to_owned);
        let key = key.ok_or_else(|| self.damaged("a storage has no key"))?;
        let element = dtype.map_or(1, |dtype| dtype.block_bytes() as u64);
        self.storages.push(Storage { key, dtype, element });
        self.stack.push(Value::Storage(self.storages.len() - 1));
        Ok(())
    }

    pub(super) fn call(&mut self) -> Result<(), Error> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let Value::Global(global) = callee else {
            return Err(self.refused("a call of something that is no known function".into()));
        };
        let arguments = self.items_of(arguments).unwrap_or_default().to_vec();
        match (global, arguments.as_slice()) {
            (Global::OrderedDict, []) => self.new_dict(),
            (Global::OrderedDict, [Value::List(list)]) => {
                let pairs = self.lists.get(*list).cloned().unwrap_or_default();
                self.new_dict();
                for pair in pairs {
                    let items = self.items_of(pair).unwrap_or_default().to_vec();
                    self.set_items(&items)?;
                }
            }
            (Global::Size, [tuple @ Value::Tuple(..)]) => self.stack.push(*tuple),
            (Global::RebuildTensor, [storage, offset, shape, strides])
            | (
                Global::RebuildTensorV2,
                [storage, offset, shape, strides, _, _] | [storage, offset, shape, strides, _, _, _],
            ) => {
                self.tensor([*storage, *offset, *shape, *strides], None)?;
            }
            (
                Global::RebuildTensorV3,
                [storage, offset, shape, strides, _, _, dtype] | [storage, offset, shape, strides, _, _, dtype, _],
            ) => self.tensor([*storage, *offset, *shape, *strides], Some(*dtype))?,
            (Global::RebuildParameter, [tensor @ Value::Tensor(_), ..]) => self.stack.push(*tensor),
            _ => return Err(self.refused("a call in an unknown form".into())),
        }
        Ok(())
    }

    fn tensor(&mut self, [storage, offset, shape, strides]: [Value; 4], dtype: Option<Value>) -> Result<(), Error> {
        let (Value::Storage(storage), Value::Int(offset)) = (storage, offset) else {
            return Err(self.damaged("a tensor has no storage"));
        };
        let typed = self.storages.get(storage).and_then(|storage| storage.dtype);
        let dtype = match (typed, dtype) {
            (Some(typed), None) => typed,
            (None, Some(Value::Global(Global::DType(dtype)))) => dtype,
            _ => return Err(self.damaged("a tensor has no type")),
        };
        let sizes = |machine: &Machine, tuple| {
            let sizes: Option<Vec<u64>> = machine.items_of(tuple)?.iter().map(|&item| unsigned(item)).collect();
            sizes
        };
        let (offset, shape, strides) = (u64::try_from(offset).ok(), sizes(self, shape), sizes(self, strides));
        let (Some(offset), Some(shape), Some(strides)) = (offset, shape, strides) else {
            return Err(self.damaged("a tensor has a bad shape, offset or stride"));
        };
        if self.tensors.len() >= MAX_TENSORS {
            return Err(self.damaged("it has too many tensors"));
        }
        self.tensors.push(TensorView { storage, dtype, offset, shape, strides });
        self.stack.push(Value::Tensor(self.tensors.len() - 1));
        Ok(())
    }

    /// Attributes of a dict (a state dict's versions) are of no use here; anything else has none.
    pub(super) fn build(&mut self) -> Result<(), Error> {
        let state = self.pop()?;
        match (self.stack.last(), state) {
            (Some(Value::Dict(_)), Value::Dict(_)) => Ok(()),
            _ => Err(self.refused("the state of an object that is no dict".into())),
        }
    }

    /// The value of a key of a dict.
    pub fn field(&self, dict: Value, key: &str) -> Option<Value> {
        let Value::Dict(dict) = dict else { return None };
        self.dicts.get(dict)?.iter().find(|(name, _)| self.text(*name) == Some(key)).map(|(_, value)| *value)
    }

    /// The elements of a list of strings.
    pub fn strings_of(&self, list: Value) -> Option<Vec<String>> {
        let Value::List(list) = list else { return None };
        self.lists.get(list)?.iter().map(|&value| self.text(value).map(str::to_owned)).collect()
    }

    /// The tensors of a dict of tensors by name, which is the only thing a weights file may hold.
    pub fn state_dict(&mut self, value: Value) -> Result<StateDict, Error> {
        let Value::Dict(dict) = value else {
            return Err(self.refused("a file that is no dict of tensors by name".into()));
        };
        let entries = self.dicts.get(dict).cloned().unwrap_or_default();
        let mut tensors = Vec::new();
        for (key, value) in entries {
            let name = self.text(key).ok_or_else(|| self.damaged("a tensor's name is no string"))?.to_owned();
            match value {
                Value::Tensor(index) => tensors.extend(self.tensors.get(index).cloned().map(|tensor| (name, tensor))),
                _ => return Err(self.refused(format!("the entry `{}`, which is no tensor,", shown(&name)))),
            }
        }
        Ok(StateDict { tensors, storages: self.storages.clone() })
    }
}

fn unsigned(value: Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(number).ok(),
        _ => None,
    }
}
