//! Translation and summary by an encoder-decoder: what a model wants around a text, and the settings that go with it.
//!
//! Models are told the task in four ways: by a token for each language (in the source for its own, and as the first token of
//! the translation for that one's), by a token for the target alone in front of the source, by a prefix in words, or not at
//! all. Which one it is, and the words, are in the tokenizer and in `task_specific_params`; no model is known by name here.
//! Every way in (library, command line, server) goes through [`TextTask`], so that all give the same tokens.

use crate::defaults::Resolved;
use crate::engine::Engine;
use crate::error::Error;
use crate::output::Prompt;
use crate::tasks::Task;
use attend_model::GenerationDefaults;
use attend_text::{
    EncodeOptions, Language, LanguagePlace, Tokenizer, Truncation, TruncationStrategy, language_code, language_name,
};
use serde_json::Value;

/// What is to be done with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writing {
    /// Languages by code or name, as [`Tokenizer::language`] reads them; `None`: what the model's files say.
    Translate {
        source: Option<String>,
        target: Option<String>,
    },
    Summarize,
}

/// A task as one model is told it.
#[derive(Debug, Clone)]
pub struct TextTask {
    /// Words in front of every text.
    pub prefix: String,
    /// The language whose token takes the place of the one that the tokenizer puts around a text.
    pub source: Option<Language>,
    /// The token in front of the text.
    pub mark: Option<u32>,
    /// What the decoder starts with, where it is not the model's usual token.
    pub start: Option<u32>,
    /// The model's settings for the task.
    pub generation: GenerationDefaults,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// A text made ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPrompt {
    pub prompt: Prompt,
    /// Tokens that the source had, where some were cut off.
    pub cut_from: Option<usize>,
}

impl Engine<'_> {
    /// How this model is told a task. `prefix` takes the place of the files' words.
    ///
    /// # Errors
    /// Models that are not encoder-decoders or have no tokenizer; languages that the model does not know, or that must be
    /// said and are not.
    pub fn text_task(&self, task: &Writing, prefix: Option<&str>) -> Result<TextTask, Error> {
        let ability = match task {
            Writing::Translate { .. } => Task::Translate,
            Writing::Summarize => Task::Summarize,
        };
        ability.check(self.source().spec())?;
        let (name, languages) = match task {
            Writing::Translate { source, target } => ("translation", (source.as_deref(), target.as_deref())),
            Writing::Summarize => ("summarization", (None, None)),
        };
        let config = self.described.checkpoint.config();
        let mut found = TextTask {
            prefix: config.value("prefix").and_then(Value::as_str).unwrap_or_default().to_owned(),
            source: None,
            mark: None,
            start: None,
            generation: self.described.generation.clone(),
            notices: Vec::new(),
        };
        self.use_settings(&mut found, name)?;
        if let Writing::Translate { .. } = task {
            self.tell_languages(&mut found, languages, prefix.is_some())?;
        }
        if let Some(prefix) = prefix {
            found.prefix = prefix.to_owned();
        }
        Ok(found)
    }

    /// The files' settings for the task with the caller's over them, as [`Engine::options`].
    ///
    /// # Errors
    /// Unknown names and wrong types.
    pub fn task_options(
        &self,
        task: &TextTask,
        given: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Resolved, Error> {
        Resolved::new(&task.generation, true, given)
    }

    /// A text as the task's prompt; with `truncate`, cut at its end where it is longer than the context.
    ///
    /// # Errors
    /// Texts that cannot be encoded. One that is too long is refused by [`Engine::generate`].
    pub fn task_prompt(&self, task: &TextTask, text: &str, truncate: bool) -> Result<TaskPrompt, Error> {
        let tokenizer = self.text_tokenizer()?;
        let text = format!("{}{text}", task.prefix);
        let options = EncodeOptions { add_special: true, parse_special: false };
        let mut encoding = tokenizer.encode(&text, options)?;
        let marks = usize::from(task.mark.is_some());
        let whole = encoding.len() + marks;
        let context = self.surroundings().context.filter(|context| truncate && whole > *context);
        if let Some(context) = context {
            let max_length = context.saturating_sub(marks);
            let strategy = TruncationStrategy::OnlyFirst;
            let truncation = Truncation { max_length, stride: 0, strategy, left: false };
            encoding =
                tokenizer.encode_truncated(&text, None, options, truncation)?.into_iter().next().unwrap_or_default();
        }
        if let Some(language) = &task.source {
            encoding.set_language(tokenizer, language);
        }
        let ids: Vec<u32> = task.mark.into_iter().chain(encoding.ids).collect();
        let prompt = Prompt { token_ids: task.start.into_iter().collect(), encoder_ids: Some(ids) };
        Ok(TaskPrompt { prompt, cut_from: context.map(|_| whole) })
    }

    fn text_tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer().ok_or_else(|| Error::Unsupported("texts need a tokenizer, and this model has none".into()))
    }

    /// Takes prefix and settings of a name under `task_specific_params`; whether it is there.
    fn use_settings(&self, task: &mut TextTask, name: &str) -> Result<bool, Error> {
        let Some(settings) = self.described.task(name)? else { return Ok(false) };
        if let Some(prefix) = settings.prefix {
            task.prefix = prefix;
        }
        task.generation = settings.generation;
        Ok(true)
    }

    fn tell_languages(
        &self,
        task: &mut TextTask,
        (source, target): (Option<&str>, Option<&str>),
        prefixed: bool,
    ) -> Result<(), Error> {
        let tokenizer = self.text_tokenizer()?;
        let languages = tokenizer.languages();
        if languages.iter().any(|language| language.place == LanguagePlace::Both) {
            self.tell_both(task, tokenizer, &languages, (source, target))
        } else if !languages.is_empty() {
            tell_target(task, tokenizer, (source, target))
        } else if prefixed {
            Ok(())
        } else {
            self.tell_in_words(task, (source, target))
        }
    }

    /// A token for each language, in the source and at the start of the translation.
    fn tell_both(
        &self,
        task: &mut TextTask,
        tokenizer: &Tokenizer,
        languages: &[Language],
        (source, target): (Option<&str>, Option<&str>),
    ) -> Result<(), Error> {
        let own =
            tokenizer.own_language(&tokenizer.encode("", EncodeOptions { add_special: true, parse_special: false })?);
        task.source = match (source, own) {
            (Some(source), Some(_)) => Some(tokenizer.language(source)?),
            (Some(_), None) => {
                let what = "the tokenizer puts no language around a text that another could take the place of";
                return Err(Error::Unsupported(what.into()));
            }
            (None, own) => {
                let own = own.map(|own| format!("the source is taken for {}, the tokenizer's own language", own.code));
                task.notices.extend(own);
                None
            }
        };
        let names_one = |id: Option<u32>| id.is_some_and(|id| languages.iter().any(|language| language.id == id));
        let starts = names_one(task.generation.decoder_start);
        match target {
            Some(target) if starts => task.start = Some(tokenizer.language(target)?.id),
            Some(target) => {
                task.generation.forced_bos = Some(tokenizer.language(target)?.id);
                task.generation.sources.insert("forced_bos_token_id", "the target language".into());
            }
            None if starts || names_one(task.generation.forced_bos) => {}
            None => {
                let some: Vec<&str> = languages.iter().take(12).map(|language| language.code.as_str()).collect();
                let what =
                    format!("the language to translate into must be said; this model knows {}, ...", some.join(", "));
                return Err(Error::Unsupported(what));
            }
        }
        Ok(())
    }

    /// No tokens: a prefix in words where the files have such, and a fixed pair of languages where they have none.
    fn tell_in_words(&self, task: &mut TextTask, (source, target): (Option<&str>, Option<&str>)) -> Result<(), Error> {
        let pairs: Vec<(&str, &str)> = self.described.tasks().into_iter().filter_map(pair).collect();
        let (source, target) = match (source, target, &pairs[..]) {
            (None, None, []) => return Ok(()),
            (None, None, [(source, target)]) => (*source, *target),
            (Some(source), Some(target), _) => (source, target),
            (_, _, pairs) => {
                let known: Vec<String> = pairs.iter().map(|(from, to)| format!("{from} to {to}")).collect();
                let known = if known.is_empty() { String::new() } else { format!(" (known: {})", known.join(", ")) };
                return Err(Error::Unsupported(format!("both languages must be said{known}")));
            }
        };
        let (from, to) = (code(source), code(target));
        if self.use_settings(task, &format!("translation_{from}_to_{to}"))? {
            return Ok(());
        }
        if let Some(langs) = self.described.checkpoint.config().value("langs").and_then(Value::as_array) {
            let langs: Vec<&str> = langs.iter().filter_map(Value::as_str).collect();
            return match langs[..] == [from.as_str(), to.as_str()] {
                true => Ok(()),
                false => {
                    Err(Error::Unsupported(format!("this model translates {}, and nothing else", langs.join(" to "))))
                }
            };
        }
        let worded = |(from, to): &(&str, &str)| -> Result<bool, Error> {
            let known = self.described.task(&format!("translation_{from}_to_{to}"))?;
            Ok(known.is_some_and(|known| known.prefix.is_some() && known.prefix == words(from, to)))
        };
        let mut usual = false;
        for pair in &pairs {
            usual |= worded(pair)?;
        }
        match words(source, target).filter(|_| usual) {
            Some(prefix) => {
                task.notices.push(format!("no file of the model names this pair of languages; it is told {prefix:?}"));
                task.prefix = prefix;
                Ok(())
            }
            None => Err(Error::Unsupported(format!(
                "no file of this model says how it is told to translate {source} to {target}: it has no language tokens and \
                 no task_specific_params for them; a prefix of your own would say it"
            ))),
        }
    }
}

/// A token for the target in front of the source.
fn tell_target(
    task: &mut TextTask,
    tokenizer: &Tokenizer,
    (source, target): (Option<&str>, Option<&str>),
) -> Result<(), Error> {
    task.mark = target.map(|target| tokenizer.language(target)).transpose()?.map(|language| language.id);
    if task.mark.is_none() {
        task.notices.push("no target language was named, and this model knows several".into());
    }
    if source.is_some() {
        task.notices.push("this model finds the source's language by itself; what was named has no effect".into());
    }
    Ok(())
}

/// The languages of a name such as `translation_en_to_de`.
fn pair(task: &str) -> Option<(&str, &str)> {
    task.strip_prefix("translation_")?.split_once("_to_")
}

fn code(language: &str) -> String {
    language_code(language).map_or_else(|| language.to_lowercase(), str::to_owned)
}

/// `translate English to German: `
fn words(source: &str, target: &str) -> Option<String> {
    Some(format!("translate {} to {}: ", language_name(source)?, language_name(target)?))
}
