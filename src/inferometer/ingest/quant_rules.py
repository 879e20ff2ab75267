"""What a checkpoint's quantisation says, in one form for all methods: ordered per-module rules."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from inferometer.ingest.patterns import PatternSet

HEAD = "lm_head"


@dataclass(frozen=True, slots=True)
class Rule:
    """Modules covered by `patterns` are stored in `format`; None leaves them in the model's dtype."""

    patterns: PatternSet
    format: str | None


@dataclass(frozen=True, slots=True)
class QuantRules:
    """First matching rule wins; what no rule covers is stored in `default`."""

    rules: tuple[Rule, ...] = ()
    default: str | None = None
    quantises_head: bool = False
    """Whether `default` reaches the head."""
    kv_format: str | None = None
    """Format of the KV cache; None keeps the model's dtype."""
    unknown: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def over(self, base: "QuantRules") -> "QuantRules":
        """Return these rules of a checkpoint quantised again: what they leave alone stays as `base` stores it."""
        kept = tuple(rule for rule in self.rules if rule.format is not None)
        return replace(
            self, rules=(*kept, *base.rules), default=base.default, kv_format=self.kv_format or base.kv_format
        )

    def renamed(self, formats: Mapping[str, str]) -> "QuantRules":
        """Return the same rules with formats stored as a family stores them."""
        rules = tuple(Rule(rule.patterns, formats.get(rule.format or "", rule.format)) for rule in self.rules)
        return replace(self, rules=rules, default=formats.get(self.default or "", self.default))

    def format_of(self, modules: tuple[str, ...], *, linear: bool = True) -> str | None:
        """Return the format of a tensor whose module goes by any of the full names `modules`.

        `linear=False` is for routers and 1-wide gates. They are parameters rather than linear layers
        in today's code, and every recipe leaves them alone: only a rule that spells one out reaches it.
        """
        for rule in self.rules:
            covers = rule.patterns.matches if linear or rule.format is None else rule.patterns.names_module
            if any(covers(module) for module in modules):
                return rule.format
        return self.default if linear else None

    def cost(self) -> int:
        """Return about how many steps one look-up takes."""
        return 1 + sum(rule.patterns.cost for rule in self.rules)

    def head_format(self) -> str | None:
        """Return the format of the head, None for the model's dtype."""
        for rule in self.rules:
            if rule.patterns.matches(HEAD):
                return rule.format
        return self.default if self.quantises_head else None

    def expert_probes(self, experts: int) -> tuple[int, ...]:
        """Return the expert indices to ask about: one, and all that a rule spells out."""
        spelled = {index for rule in self.rules for index in rule.patterns.experts if index < experts}
        if not spelled:
            return (0,)
        # The smallest index that no rule spells out stands for all the others.
        other = next((index for index in range(experts) if index not in spelled), 0)
        return tuple(sorted({*spelled, other}))
