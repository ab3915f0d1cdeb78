"""The paper's tables and figures; a new experiment is one file here and one entry below."""

from mtnet.experiments.figure4 import FIGURE4
from mtnet.experiments.table1 import TABLE1, TABLE1_ALSO
from mtnet.experiments.table2 import TABLE2
from mtnet.experiments.table3 import TABLE3
from mtnet.experiments.types import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e for e in (TABLE1, TABLE1_ALSO, TABLE2, *TABLE3, FIGURE4)
}
