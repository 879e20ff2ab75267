"""How fast does this model run on this machine, sharded this way; does it fit; what does it cost; how sure are we?"""
