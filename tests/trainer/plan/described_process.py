"""A plan's description of one rank, in a process of its own: what it begins with, and what the plan then counts.

PyTorch keeps the places of divided tensors from one fake rank to the next, so a process describes one.
"""

import json
import sys

from slipway.trainer.plan import question as questions
from slipway.trainer.plan import stages
from tests.trainer.plan.holdings import holdings_of, planned_engine


def main() -> None:
    question, rank, counts = questions.build(json.loads(sys.argv[1])), int(sys.argv[2]), sys.argv[3] == "counts"
    with planned_engine(question, rank) as engine:
        begun = holdings_of(engine)
    extent = stages._full_extent(question, question.mesh.stage(rank))
    after = stages._run(question, rank, extent).peaks["update"] if counts else {}
    print(json.dumps({"begun": begun, "after": after}))


if __name__ == "__main__":
    main()
