//! How models write their calls, as small programs over the text behind an opening mark.

/// One step of a program. Numbers are the steps that it goes on with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// White space, which may be none.
    Space,
    /// This must stand here.
    Text(&'static str),
    /// This may.
    Maybe(&'static str),
    /// Where this stands, it is taken, and the program goes on elsewhere.
    If(&'static str, usize),
    /// The same, but it is left.
    See(&'static str, usize),
    Go(usize),
    /// An object with a name and arguments, or a list of such: whole calls.
    Calls,
    /// The name of a function.
    Name,
    /// An object: the arguments of the function that was named. The call is whole.
    Arguments,
    /// Whatever stands before this mark, and the mark.
    Skip(&'static str),
    /// The name of an argument, up to `>`.
    Key,
    /// The value of an argument, up to this mark.
    Value(&'static str),
    /// The call whose arguments were given one by one is whole.
    Whole,
    /// The end of the calls.
    Done,
}

use Step::{Arguments, Calls, Done, Go, If, Key, Maybe, Name, See, Skip, Space, Text, Value, Whole};

/// A mark that opens calls, and the step that reads on behind it.
pub(super) type Opening = (&'static str, &'static [Step], usize);

/// `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, or inside the tags
/// `<function=NAME><parameter=KEY>VALUE</parameter></function>`.
const TAGGED: &[Step] = &[
    Space,
    If("<function=", 6),
    Calls,
    Space,
    Maybe("</tool_call>"),
    Done,
    Name,
    Text(">"),
    Space,
    If("<parameter=", 13),
    Text("</function>"),
    Whole,
    Go(3),
    Key,
    Value("</parameter>"),
    Go(8),
];
const FUNCTION: usize = 6;

/// `{"name": ..., "parameters": {...}}`, several one after the other or with semicolons between them. Where only the opening
/// mark is missing, the closing one stands behind.
const OBJECTS: &[Step] = &[Space, Calls, Space, If(";", 0), See("{", 1), Maybe("</tool_call>"), Done];

/// The same in a fence.
const FENCED: &[Step] = &[Space, Calls, Space, See("{", 1), Maybe("```"), Done];

/// `[{"name": ..., "arguments": {...}}, ...]`, or `NAME[ARGS]{...}`, `NAME{...}`, `NAME[CALL_ID]ID[ARGS]{...}`.
const BRACKETED: &[Step] = &[
    Space,
    See("[", 7),
    Name,
    If("[CALL_ID]", 9),
    Maybe("[ARGS]"),
    Arguments,
    Done,
    Calls,
    Done,
    Skip("[ARGS]"),
    Go(5),
];

/// Calls one after the other between their own marks: `function<sep>NAME\n```json\n{...}\n```` or `NAME<sep>{...}`.
const SEPARATED: &[Step] = &[
    Space,
    If("<｜tool▁call▁begin｜>", 4),
    Maybe("<｜tool▁calls▁end｜>"),
    Done,
    Name,
    Text("<｜tool▁sep｜>"),
    Space,
    See("{", 11),
    Name,
    Space,
    Maybe("```json"),
    Space,
    Arguments,
    Space,
    Maybe("```"),
    Space,
    Maybe("<｜tool▁call▁end｜>"),
    Go(0),
];

/// A list or an object between marks.
const LISTED: &[Step] = &[Space, Calls, Space, Maybe("<|/tool_call|>"), Done];

/// A form in which calls are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallForm {
    Tagged,
    PythonTag,
    /// Objects with nothing around them or in a fence, at the beginning of an answer.
    Bare,
    Bracketed,
    Separated,
    Listed,
}

impl CallForm {
    pub fn openings(self) -> &'static [Opening] {
        match self {
            CallForm::Tagged => &[("<tool_call>", TAGGED, 0), ("<function=", TAGGED, FUNCTION)],
            CallForm::PythonTag => &[("<|python_tag|>", OBJECTS, 0)],
            CallForm::Bare => &[],
            CallForm::Bracketed => &[("[TOOL_CALLS]", BRACKETED, 0)],
            CallForm::Separated => &[("<｜tool▁calls▁begin｜>", SEPARATED, 0)],
            CallForm::Listed => &[("<|tool_call|>", LISTED, 0)],
        }
    }

    /// The opening of objects with nothing around them, of which no part is a mark.
    pub const BARE: Opening = ("", OBJECTS, 0);
    /// The opening of those in a fence.
    pub const FENCE: Opening = ("```json", FENCED, 0);

    /// Marks that may be special tokens of the vocabulary.
    pub fn marks(self) -> &'static [&'static str] {
        match self {
            CallForm::Tagged => {
                &["<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>"]
            }
            CallForm::PythonTag => &["<|python_tag|>"],
            CallForm::Bare => &[],
            CallForm::Bracketed => &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
            CallForm::Separated => &[
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>",
                "<｜tool▁sep｜>",
                "<｜tool▁call▁end｜>",
                "<｜tool▁calls▁end｜>",
            ],
            CallForm::Listed => &["<|tool_call|>", "<|/tool_call|>"],
        }
    }
}
