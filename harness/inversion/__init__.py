"""Recovers a model's input from its output (INVERSION).

    target = Target(depth=2)
    goal = target.output(subject, ids)            # [rows, n, features]
    result = invert(subject, target, goal)        # result.ids == ids, each verified

This is the first page of the room: other rooms import names from here.  Pages of their own are
`decoding` and `own_rows` (W⁺, and what it recovers), `nets`, `gradients` and `walks` (document
003's networks, and ways through input space), and `start` (of a descent).
"""

from assay.harness.inversion.batch import DISTANCES as DISTANCES
from assay.harness.inversion.batch import Descent as Descent
from assay.harness.inversion.batch import Over as Over
from assay.harness.inversion.batch import Rule as Rule
from assay.harness.inversion.candidates import Prefixes as Prefixes
from assay.harness.inversion.candidates import accepted as accepted
from assay.harness.inversion.descent import check_target as check_target
from assay.harness.inversion.descent import descend as descend
from assay.harness.inversion.from_less import GIVEN as GIVEN
from assay.harness.inversion.from_less import from_last as from_last
from assay.harness.inversion.from_less import from_shuffled as from_shuffled
from assay.harness.inversion.from_less import last_states as last_states
from assay.harness.inversion.from_less import probes as probes
from assay.harness.inversion.from_less import unshuffle as unshuffle
from assay.harness.inversion.gradients import condition as condition
from assay.harness.inversion.gradients import jacobian as jacobian
from assay.harness.inversion.methods import DECODERS as DECODERS
from assay.harness.inversion.methods import METHODS as METHODS
from assay.harness.inversion.methods import RATE as RATE
from assay.harness.inversion.methods import STARTS as STARTS
from assay.harness.inversion.methods import Inversion as Inversion
from assay.harness.inversion.methods import decode as decode
from assay.harness.inversion.methods import invert as invert
from assay.harness.inversion.methods import likeliest as likeliest
from assay.harness.inversion.methods import ranks as ranks
from assay.harness.inversion.set_up import default_folder as default_folder
from assay.harness.inversion.set_up import linear_map as linear_map
from assay.harness.inversion.target import THROUGH as THROUGH
from assay.harness.inversion.target import Output as Output
from assay.harness.inversion.target import Target as Target
from assay.harness.inversion.target import embedded as embedded
from assay.harness.inversion.target import head_inverse as head_inverse
from assay.harness.inversion.target import places_added as places_added
from assay.harness.inversion.target import without_head as without_head
from assay.harness.inversion.token_by_token import SearchResult as SearchResult
from assay.harness.inversion.token_by_token import exhaustive as exhaustive
from assay.harness.inversion.token_by_token import ranked as ranked
from assay.harness.inversion.whole_prompts import exact as exact
