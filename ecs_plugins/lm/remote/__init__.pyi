from .model import RemoteLM as RemoteLM
from .options import RemoteOptions as RemoteOptions
