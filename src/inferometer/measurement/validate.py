"""Hold estimates against published measurements, point by point."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from inferometer.cost.backend import Band, CostBackend, band_of
from inferometer.cost.calibrated import Calibrated, calibrated_in, calibrated_with, load_serving
from inferometer.cost.measured import Measured
from inferometer.cost.registry import create_backend
from inferometer.errors import InferometerError, unknown_name
from inferometer.estimate.share import can_share, start
from inferometer.measurement.models import chip_of
from inferometer.measurement.passes import Pass, Pricer
from inferometer.measurement.points import CLASSES, METRIC_UNITS, Point, load_points
from inferometer.measurement.predict import predict, wanted_of
from inferometer.measurement.published import read_points
from inferometer.measurement.questions import SCORED_CLASSES, Question, ask, fold_of
from inferometer.measurement.summary import era_of, group_of, summarise
from inferometer.specs.deployment import ROLES
from inferometer.specs.hardware import ChipSpec

ENGINE = "ideal"
"""Engine that rows are priced with. The engines published rows ran are older than any the catalogue describes."""


def validate_points(
    path: str | None = None,
    *,
    backend: str = "roofline",
    calibration: object | None = None,
    classes: Sequence[str] = SCORED_CLASSES,
) -> Iterator[dict[str, Any]]:
    """Yield one row a point that can be scored, in file order, then `{"summary": ...}`.

    `path`: a CSV of the user's own, in the published dialect or in ours; None: the committed points. Values, `low`
    and `high` are in the unit of the metric (`unit`). Every point is a row or is counted in the summary's `not_scored`.

    Raises InferometerError for a bad file, an unknown backend, and a class there is no rule for.
    """
    for klass in classes:
        if klass not in CLASSES:
            raise unknown_name("class", klass, CLASSES)
        if klass not in SCORED_CLASSES:
            raise InferometerError(f"class {klass} cannot be scored yet; allowed: {', '.join(SCORED_CLASSES)}")
    points = load_points() if path is None else read_points(path)
    return _validate(points, create_backend(backend, calibration), classes)


class Asked(NamedTuple):
    """A point with the question it answers."""

    point: Point
    question: Question


def asked_points(classes: Sequence[str] = SCORED_CLASSES) -> list[Asked]:
    """Return the committed points that can be asked."""
    found = ((point, ask(point)) for point in load_points() if point.klass in classes)
    return [Asked(point, question) for point, question in found if isinstance(question, Question)]


def predictions(asked: Sequence[Asked], backend: CostBackend) -> list[float]:
    """Return what a backend says each point should have measured; nan where it cannot be priced."""
    return predicted([(question, point.metric) for point, question in asked], Pricer(backend))


def predicted(asked: Sequence[tuple[Question, str]], pricer: Pricer) -> list[float]:
    """Return what a backend says of each question and metric; nan where it cannot be priced."""
    pricer.price(pair for question, metric in asked for pair in wanted_of(question, metric))
    out = []
    for question, metric in asked:
        refused = any(one in pricer.refused for one, _ in wanted_of(question, metric))
        out.append(float("nan") if refused else predict(question, metric, pricer).value)
    return out


def fold_backends(backend: CostBackend) -> Callable[[Question], CostBackend]:
    """Return the backend that each question is put to: of a fitted one, the fold's that has not seen its pair.

    Runs of another era take that era's scalars on it, of the same fold.
    """
    fitted = fitted_of(backend)
    if fitted is None:
        return lambda question: backend  # noqa: ARG005 (called as the other)

    @cache
    def of(fold: int, era: str) -> CostBackend:
        own = fitted.calibration
        found = calibrated_in(era, fold, own) if era else calibrated_with(load_serving().folds[fold], own)
        return backend.over(found) if isinstance(backend, Measured) else found

    usual = "" if fitted.era is None else fitted.era.name
    return lambda question: of(fold_of(question.setup.model, question.setup.chip), question.era or usual)


def fitted_of(backend: CostBackend) -> Calibrated | None:
    """Return the calibrated backend that a backend is, or stands on."""
    if isinstance(backend, Measured):
        return backend.inner
    return backend if isinstance(backend, Calibrated) else None


def _validate(points: Sequence[Point], backend: CostBackend, classes: Sequence[str]) -> Iterator[dict[str, Any]]:
    reasons: Counter[str] = Counter()
    asked: list[tuple[Point, Question]] = []
    for point in points:
        question = ask(point) if point.klass in classes else f"class: {point.klass or 'none'}"
        if isinstance(question, str):
            reasons[question] += 1
        else:
            asked.append((point, question))
    put_to = fold_backends(backend)
    wanted: dict[int, list[tuple[Pass, int]]] = {}
    pricers: dict[int, Pricer] = {}
    for point, question in asked:
        own = put_to(question)
        pricers.setdefault(id(own), Pricer(own))
        wanted.setdefault(id(own), []).extend(wanted_of(question, point.metric))
    _price_all([(pricer, wanted[key]) for key, pricer in pricers.items()])
    rows = []
    for point, question in asked:
        pricer = pricers[id(put_to(question))]
        refused = [pricer.refused[one] for one, _ in wanted_of(question, point.metric) if one in pricer.refused]
        if refused:
            reasons[f"refused: {refused[0]}"] += 1
            continue
        row = _row(point, question, pricer)
        rows.append(row)
        yield row
    yield {"summary": {"backend": backend.name, "engine": ENGINE} | summarise(rows, reasons)}


WORTH_SHARING = 2000
"""Passes and batches from which on a second process takes half."""


def _price_all(asked: Sequence[tuple[Pricer, list[tuple[Pass, int]]]]) -> None:
    """Price what each pricer is asked for, about half of it in a second process where that is cheap."""
    largest_first = sorted(asked, key=lambda one: -len(one[1]))
    theirs = largest_first[1::2]
    wait = None
    if sum(len(pairs) for _, pairs in asked) >= WORTH_SHARING and theirs and can_share():
        wait = start(lambda: [pricer.priced(pairs) for pricer, pairs in theirs])
    for pricer, pairs in largest_first[::2] if wait else largest_first:
        pricer.price(pairs)
    found = wait() if wait else None
    for i, (pricer, pairs) in enumerate(theirs if wait else ()):
        if found is None:
            pricer.price(pairs)
        else:
            pricer.take(found[i])


def _row(point: Point, question: Question, pricer: Pricer) -> dict[str, Any]:
    setup = question.setup
    answer = predict(question, point.metric, pricer)
    chip = chip_of(setup.chip)
    band = pricer.backend.band() if chip is None else band_of(pricer.backend, chip)
    low, high = in_metric(answer.value, band, is_time=point.is_time)
    return {
        "group_id": point.group_id,
        "metric": point.metric,
        "measured": point.measured,
        "predicted": answer.value,
        "error": answer.value / point.measured - 1,
        "low": low,
        "high": high,
        "class": point.klass,
        "in_sample": seen_by_fit(pricer.backend, chip),
        "unit": METRIC_UNITS[point.metric],
        "model": setup.model,
        "weight_format": setup.weights,
        "kv_format": setup.kv,
        "chip": chip.id if chip else setup.chip,
        "n_chips": setup.n_chips,
        "sizes": {role: getattr(setup.sizes, role) for role in ROLES},
        "isl": question.isl_tok,
        "osl": question.osl_tok,
        "batch": question.batch,
        "phase": question.phase,
        "framework": f"{point.framework} {point.framework_version}".strip(),
        "engine": ENGINE,
        "backend": pricer.backend.name,
        "fits": answer.fits,
        "suspicious": list(point.suspicious),
        "assumed": [*question.assumed, *([f"software of {question.era}"] if question.era else [])],
        "group": group_of(point.klass, point.source.url),
        "era": era_of(point.framework, point.framework_version, point.source.url),
        "source": point.source.name,
        "url": point.source.url,
        "date": point.source.date,
    }


def in_metric(value: float, band: Band, *, is_time: bool) -> tuple[float, float]:
    """Return low and high of a value, whose time lies between `band.low` and `band.high` of what was predicted.

    A rate is tokens over time, so the longest time gives the lowest rate.

    >>> in_metric(10.0, Band(1.0, 5.0, ""), is_time=True), in_metric(10.0, Band(1.0, 5.0, ""), is_time=False)
    ((10.0, 50.0), (2.0, 10.0))
    """
    if is_time:
        return value * band.low, value * band.high
    return value / band.high, value / band.low


def seen_by_fit(backend: CostBackend, chip: ChipSpec | None = None) -> bool:
    """Return whether a backend's times were fitted to the row; datasheet limits were not, nor is a fold's own row.

    Another fitted backend is taken to have seen every row, and a calibration every row of its generation: out of
    sample is claimed only where it is certain. The band is another matter: it always comes from these rows.
    """
    fitted = fitted_of(backend)
    if fitted is not None:
        own = fitted.calibration
        return own is not None and (chip is None or own.generation == chip.generation)
    return backend.basis != "analytic"
