"""The rules of the corpus and their sampling weights.

A rule takes a `Grammar` and returns a pair `(korean, english)`.
"""

from . import joined, questions, statements

RULES = {
    statements.statement: 16,
    statements.going: 6,
    statements.also: 4,
    statements.negation: 7,
    statements.modal: 7,
    statements.request: 5,
    statements.give: 5,
    statements.span: 4,
    statements.description: 5,
    statements.feeling: 3,
    statements.comparison: 3,
    statements.copula: 3,
    statements.existence: 5,
    questions.yes_no: 6,
    questions.wh_question: 7,
    questions.how_many: 2,
    joined.same_subject: 5,
    joined.one_not_other: 4,
    joined.two_subjects: 4,
    joined.weather: 4,
    joined.because_feeling: 4,
    joined.if_have: 3,
    joined.around: 5,
    joined.errand: 4,
    joined.relative_object: 5,
    joined.relative_subject: 3,
}
