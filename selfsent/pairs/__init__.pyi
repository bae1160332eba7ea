from selfsent.pairs.convert import convert_pairs as convert_pairs
from selfsent.pairs.mine import mine_pairs as mine_pairs
from selfsent.pairs.structure import structure_pairs as structure_pairs
