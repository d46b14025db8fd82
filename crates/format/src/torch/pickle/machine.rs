//! The stack machine.

mod rebuild;

use std::collections::HashMap;

use super::global::Global;
use super::{Storage, TensorView};
use crate::Error;
use crate::error::shown;
use crate::stream::Stream;

/// Steps of all pickles of a file together; a tensor takes some forty.
const MAX_STEPS: usize = 1 << 20;
/// The longest string; names of tensors are far shorter.
const MAX_STRING: usize = 1 << 14;

/// A value on the stack; the rest of it is in one of the machine's arenas.
#[derive(Debug, Clone, Copy)]
pub(in crate::torch) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A number of no use here: a float, or an integer beyond 64 bits.
    Number,
    Global(Global),
    String(usize),
    /// Start and length in `items`.
    Tuple(usize, usize),
    List(usize),
    Dict(usize),
    Storage(usize),
    Tensor(usize),
}

pub(in crate::torch) struct Machine<'a, 'b> {
    stream: &'a mut Stream<'b>,
    steps: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    strings: Vec<String>,
    items: Vec<Value>,
    lists: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
    storages: Vec<Storage>,
    tensors: Vec<TensorView>,
}

impl<'a, 'b> Machine<'a, 'b> {
    pub fn new(stream: &'a mut Stream<'b>) -> Machine<'a, 'b> {
        Machine {
            stream,
            steps: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            strings: Vec::new(),
            items: Vec::new(),
            lists: Vec::new(),
            dicts: Vec::new(),
            storages: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// Runs one pickle from the stream and gives its value.
    pub fn run(&mut self) -> Result<Value, Error> {
        self.stack.clear();
        self.marks.clear();
        self.memo.clear();
        loop {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(self.damaged("it has too many steps"));
            }
            let [code] = self.stream.take()?;
            if code == b'.' {
                return self.pop();
            }
            self.step(code)?;
        }
    }

    pub fn damaged(&self, problem: &str) -> Error {
        let file = self.stream.source.path().to_path_buf();
        Error::BadPickle { file, position: self.stream.position, problem: problem.into() }
    }

    fn refused(&self, found: String) -> Error {
        Error::UnsafePickle { file: self.stream.source.path().to_path_buf(), found }
    }

    fn step(&mut self, code: u8) -> Result<(), Error> {
        match code {
            // PROTO, FRAME: a version and a length that say nothing new.
            0x80 => drop(self.stream.take::<1>()?),
            0x95 => drop(self.stream.take::<8>()?),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'J' => self.int(4)?,
            b'K' => self.int(1)?,
            b'M' => self.int(2)?,
            0x8a => self.long()?,
            b'G' => {
                self.stream.take::<8>()?;
                self.stack.push(Value::Number);
            }
            b'U' | 0x8c => self.string(1)?,
            b'T' | b'X' => self.string(4)?,
            0x8d => self.string(8)?,
            b')' => self.stack.push(Value::Tuple(0, 0)),
            0x85..=0x87 => self.tuple_of(usize::from(code - 0x84))?,
            b't' => {
                let mark = self.mark()?;
                self.tuple_from(mark);
            }
            b']' => {
                self.lists.push(Vec::new());
                self.stack.push(Value::List(self.lists.len() - 1));
            }
            b'}' => self.new_dict(),
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' => {
                let mark = self.mark()?;
                let items = self.stack.split_off(mark);
                self.append(&items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[key, value])?;
            }
            b'u' => {
                let mark = self.mark()?;
                let items = self.stack.split_off(mark);
                self.set_items(&items)?;
            }
            b'q' => self.put(1)?,
            b'r' => self.put(4)?,
            0x94 => {
                let index = self.memo.len() as u32;
                self.put_at(index)?;
            }
            b'h' => self.get(1)?,
            b'j' => self.get(4)?,
            b'c' => self.global()?,
            0x93 => self.stack_global()?,
            b'Q' => self.persistent()?,
            b'R' => self.call()?,
            b'b' => self.build()?,
            other => return Err(self.refused(format!("the pickle instruction {other:#04x}"))),
        }
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, Error> {
        // Nothing below a mark may be taken before the mark is.
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.damaged("it takes from an empty stack"));
        }
        self.stack.pop().ok_or_else(|| self.damaged("it takes from an empty stack"))
    }

    fn mark(&mut self) -> Result<usize, Error> {
        self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or_else(|| self.damaged("it lacks a mark"))
    }

    /// A little-endian number of 1, 2, 4 or 8 bytes.
    fn number(&mut self, width: usize) -> Result<u64, Error> {
        let bytes = self.stream.bytes(width)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn int(&mut self, width: usize) -> Result<(), Error> {
        let number = self.number(width)?;
        // Only the widest form is signed.
        let signed = if width == 4 { i64::from(number as u32 as i32) } else { number as i64 };
        self.stack.push(Value::Int(signed));
        Ok(())
    }

    fn long(&mut self) -> Result<(), Error> {
        let width = self.number(1)? as usize;
        let bytes = self.stream.bytes(width)?;
        let negative = bytes.last().is_some_and(|&top| top >= 0x80);
        let start = if negative { -1 } else { 0 };
        let value = match width {
            0..=8 => Value::Int(bytes.iter().rev().fold(start, |number: i64, &byte| number << 8 | i64::from(byte))),
            _ => Value::Number,
        };
        self.stack.push(value);
        Ok(())
    }

    fn string(&mut self, width: usize) -> Result<(), Error> {
        let length = self.number(width)?;
        if length > MAX_STRING as u64 {
            return Err(self.damaged("a string is longer than 16384 bytes"));
        }
        let bytes = self.stream.bytes(length as usize)?;
        let text = String::from_utf8(bytes).map_err(|_| self.damaged("a string is not UTF-8"))?;
        self.push_string(text);
        Ok(())
    }

    fn push_string(&mut self, text: String) {
        self.strings.push(text);
        self.stack.push(Value::String(self.strings.len() - 1));
    }

    fn tuple_of(&mut self, count: usize) -> Result<(), Error> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|&from| from >= floor);
        let from = from.ok_or_else(|| self.damaged("it takes from an empty stack"))?;
        self.tuple_from(from);
        Ok(())
    }

    fn tuple_from(&mut self, from: usize) {
        let start = self.items.len();
        self.items.extend(self.stack.drain(from..));
        self.stack.push(Value::Tuple(start, self.items.len() - start));
    }

    fn new_dict(&mut self) {
        self.dicts.push(Vec::new());
        self.stack.push(Value::Dict(self.dicts.len() - 1));
    }

    fn append(&mut self, items: &[Value]) -> Result<(), Error> {
        match self.stack.last() {
            Some(&Value::List(list)) => self.lists.get_mut(list).into_iter().for_each(|list| list.extend(items)),
            _ => return Err(self.damaged("it appends to something that is no list")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Value]) -> Result<(), Error> {
        let Some(&Value::Dict(dict)) = self.stack.last() else {
            return Err(self.damaged("it sets an item of something that is no dict"));
        };
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.damaged("it sets a key without a value"));
        }
        if let Some(dict) = self.dicts.get_mut(dict) {
            dict.extend(pairs.iter().map(|&[key, value]| (key, value)));
        }
        Ok(())
    }

    fn put(&mut self, width: usize) -> Result<(), Error> {
        let index = self.number(width)? as u32;
        self.put_at(index)
    }

    fn put_at(&mut self, index: u32) -> Result<(), Error> {
        let top = *self.stack.last().ok_or_else(|| self.damaged("it remembers nothing"))?;
        self.memo.insert(index, top);
        Ok(())
    }

    fn get(&mut self, width: usize) -> Result<(), Error> {
        let index = self.number(width)? as u32;
        let value = *self.memo.get(&index).ok_or_else(|| self.damaged("it recalls what it never remembered"))?;
        self.stack.push(value);
        Ok(())
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        loop {
            match self.stream.take()? {
                [b'\n'] => return String::from_utf8(line).map_err(|_| self.damaged("a name is not UTF-8")),
                [byte] if line.len() < 256 => line.push(byte),
                _ => return Err(self.damaged("a name is longer than 256 bytes")),
            }
        }
    }

    fn global(&mut self) -> Result<(), Error> {
        let (module, name) = (self.line()?, self.line()?);
        self.push_global(&module, &name)
    }

    fn stack_global(&mut self) -> Result<(), Error> {
        let (name, module) = (self.pop()?, self.pop()?);
        match (self.text(module), self.text(name)) {
            (Some(module), Some(name)) => {
                let (module, name) = (module.to_owned(), name.to_owned());
                self.push_global(&module, &name)
            }
            _ => Err(self.damaged("it names something that is no string")),
        }
    }

    fn push_global(&mut self, module: &str, name: &str) -> Result<(), Error> {
        let global = Global::parse(module, name);
        let global = global.ok_or_else(|| self.refused(format!("`{}`", shown(&format!("{module}.{name}")))))?;
        self.stack.push(Value::Global(global));
        Ok(())
    }

    fn text(&self, value: Value) -> Option<&str> {
        match value {
            Value::String(index) => self.strings.get(index).map(String::as_str),
            _ => None,
        }
    }

    fn items_of(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::Tuple(start, length) => self.items.get(start..start.checked_add(length)?),
            _ => None,
        }
    }
}
