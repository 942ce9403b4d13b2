__device__ int q(){ return ((((((1))))));}
 int t[] = {1,2,3};
 if (x) {} else if (y) {} else {}
