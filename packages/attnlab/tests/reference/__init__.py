"""The NumPy float64 reference of every part: formulas written for reading, and the oracle of the
tests.

`attention` holds softmax attention, its gradients and its heads; `masks` who may attend to whom;
`positions` where a token stands; `layers` everything else in a block. Nothing here imports torch or
is fast. One mask convention throughout: True = may attend. Axis words: batch, head, query, key,
width.
"""

from .attention import Attention as Attention
from .attention import attention as attention
from .attention import attention_gradients as attention_gradients
from .attention import entropy as entropy
from .attention import join_heads as join_heads
from .attention import multi_head_attention as multi_head_attention
from .attention import softmax as softmax
from .attention import split_heads as split_heads
from .layers import factorised_weight as factorised_weight
from .layers import feed_forward as feed_forward
from .layers import gelu as gelu
from .layers import layer_norm as layer_norm
from .layers import relu as relu
from .layers import rms_norm as rms_norm
from .layers import silu as silu
from .layers import swiglu as swiglu
from .masks import anti_causal_mask as anti_causal_mask
from .masks import block_mask as block_mask
from .masks import causal_mask as causal_mask
from .masks import padding_mask as padding_mask
from .masks import prefix_mask as prefix_mask
from .masks import sliding_window_mask as sliding_window_mask
from .positions import alibi_bias as alibi_bias
from .positions import alibi_slopes as alibi_slopes
from .positions import rotary as rotary
from .positions import sinusoidal_positions as sinusoidal_positions
