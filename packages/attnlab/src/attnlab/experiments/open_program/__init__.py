"""`open_program`: a part of a model is compiled and the rest trained; is the part of any use?"""

from attnlab.experiments.open_program.config import OpenProgramConfig as OpenProgramConfig
