import sys,time
sys.path[:0]=['.','kernels']
import numpy as np
lev=sys.argv[1]; k=int(sys.argv[2]); n=int(sys.argv[3])
from trinity_kernels.selftest import KERNELS,kernels_of
from trinity.runtime.kernel_choice import KernelChoice
ch=KernelChoice(lev,lambda s:None)
a=time.time()
for i,(name,tag) in enumerate(kernels_of(lev)):
    if i%n==k:
        t=time.time(); ch.prepare(KERNELS[name][0],tag); print(name,tag,round(time.time()-t,1),flush=True)
from trinity_kernels.quantizers import WRITABLE,quantize_rows
for i,t_ in enumerate(sorted(WRITABLE)):
    if i%n==k:
        t=time.time(); x=np.random.default_rng(0).standard_normal((4,512)).astype('f4')
        quantize_rows(t_,x); quantize_rows(t_,x,np.ones(512,'f4')); print('quant',t_,round(time.time()-t,1),flush=True)
print('total',time.time()-a)
