#inc\
lude <cuda_fp16.h>
%:include "mma.h"
const char *s = R"x( raw )x"; auto c = '\''; int i = 1'000'000; // ' " */
/* "
 */ #if __has_include(<a/*b>)
#endif
#define F <cuda_fp8.h>
#error don't
