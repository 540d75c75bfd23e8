"""copier's refusals of answers, as data: which question, why, and an answer that it takes."""

import shlex
from dataclasses import dataclass

import yaml

from kernel_new import questions
from kernel_new.errors import UsageError


@dataclass(frozen=True)
class Refusal:
    """An answer that was refused; `proposed` are values that would do, several for a list."""

    question: questions.Question
    reason: str
    proposed: tuple[str, ...]

    def error(self) -> UsageError:
        """With the option that would give the answer."""
        flags = (f"{self.question.flag} {shlex.quote(value)}" for value in self.proposed)
        return UsageError(self.reason, " ".join(flags))


def read(text: str) -> Refusal | None:
    """The refusal that copier's message `text` speaks of; None where it is about something else."""
    for question in questions.asked().values():
        if text.startswith(f"Invalid choice for '{question.name}': "):
            values = question.values
            return Refusal(question, f"{question.name} is none of {', '.join(values)}", (values[0],))
        prefix = f"Validation error for question '{question.name}': "
        if text.startswith(prefix):
            return of(question, text.removeprefix(prefix))
    return None


def of(question: questions.Question, text: str) -> Refusal:
    """What a validator of copier.yml says: `try VALUE: REASON`, the value in YAML where it is a list."""
    proposed, _, reason = text.removeprefix("try ").partition(": ")
    values = yaml.safe_load(proposed) if proposed.startswith("[") else [proposed]
    return Refusal(question, reason, tuple(values))


def check_texts(answers: dict[str, object]) -> None:
    """Raise `UsageError` for an answer that is no text where a text is asked, or that is no Unicode: copier is lax."""
    for name, value in answers.items():
        question = questions.asked().get(name)
        if question and question.is_text and not isinstance(value, str):
            example = question.choices[0].value if question.choices else "a text"
            raise UsageError(f"{name} is a text, and not a {type(value).__name__}", f"In YAML: {name}: '{example}'")
        if isinstance(value, str) and not _is_unicode(value):
            raise UsageError(f"the answer to {name} is not UTF-8", "Write it in UTF-8.")
        if isinstance(value, str) and question and not question.is_text:
            _check_yaml(question, value)


def _check_yaml(question: questions.Question, value: str) -> None:
    try:
        yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError) as error:
        hint = f"As a list, such as {question.default}"
        raise UsageError(f"{question.name} is not valid YAML: {str(error).splitlines()[0]}", hint) from error


def _is_unicode(text: str) -> bool:
    try:
        return bool(text.encode("utf-8")) or not text
    except UnicodeEncodeError:
        return False
