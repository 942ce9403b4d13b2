
struct P { int a; float b[3]; };
struct Big { char c[8000]; };
template<int N, typename T> __global__ void __launch_bounds__(256) ln(const T* __restrict__ x, T* y, int n){ __shared__ float s[N]; s[threadIdx.x]=float(x[threadIdx.x]); __syncthreads(); y[threadIdx.x]=T(s[(threadIdx.x+1)%N]); }
extern "C" __global__ void ec(float*a, const float* b, int n, P p){ volatile float q[200]; for(int i=0;i<n;i++) q[i%200]=b[i]; a[0]=q[n%200]+p.a; }
namespace k { __global__ void plain(const float4* a, unsigned long long z, bool q){ } __global__ void big(Big b, float *p) { p[0] = b.c[3]; } }
